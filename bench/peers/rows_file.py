"""Rows of a running benchmark, in a JSON file that is valid at any time."""

import json
import os


class RowsFile:
    """A document {"program", "machine", "options", "complete", "rows"} that is written to `path`.

    Every added row replaces the file atomically, so that an interrupted program keeps its rows.
    "complete" is true at the end of the program. `key` names the fields that identify a row: a new
    row replaces an earlier one with the same values. Without a path nothing is written.
    """

    def __init__(self, path, program, options, key):
        self.path, self.key = path, key
        self.document = {"program": program, "machine": {}, "options": options,
                         "complete": False, "rows": []}

    @property
    def rows(self):
        return self.document["rows"]

    def key_of(self, row):
        return tuple(row.get(field) for field in self.key)

    def begin(self, machine, resume):
        """Sets the machine. With `resume`, keeps the rows of an interrupted file, if it has the
        same program, machine and options."""
        self.document["machine"] = machine
        if not resume or not self.path or not self.path.exists():
            return
        try:
            earlier = json.loads(self.path.read_text())
            same = all(earlier[field] == self.document[field]
                       for field in ("program", "machine", "options"))
            if same and not earlier["complete"]:
                self.document["rows"] = earlier["rows"]
        except (ValueError, KeyError, TypeError) as error:
            print(f"{self.path}: not a file of this program, begins anew: {error!r}")

    def add(self, row):
        for i, other in enumerate(self.rows):
            if self.key_of(other) == self.key_of(row):
                self.rows[i] = row
                break
        else:
            self.rows.append(row)
        print(json.dumps(row), flush=True)
        self.write()

    def finish(self):
        self.document["complete"] = True
        self.write()

    def write(self):
        if not self.path:
            return
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.document, indent=1) + "\n")
        os.replace(new, self.path)
