'use strict';
// The tables of a page, and how it is drawn and updated. The charts are in charts.js.

// ---- Tables ----

function table(caption, head, rows) {
  const kindOf = (content) => typeof content !== 'string' ? '' : content.length > 24 ? 'long'
      : /^-?[\d.]/.test(content) ? 'number' : '';
  const cell = (content, i) =>
      html(i === 0 ? 'th' : 'td', i === 0 ? {scope: 'row'} : {class: kindOf(content)}, content);
  const isNumber = head.map((_, i) => i > 0 && rows.every((row) => kindOf(row[i]) === 'number'));
  const title = (word, i) => html('th', {scope: 'col', class: isNumber[i] ? 'number' : ''}, word);
  return html('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption},
      html('table', {}, html('thead', {}, html('tr', {}, ...head.map(title))),
           html('tbody', {}, ...rows.map((row) => html('tr', {}, ...row.map(cell))))));
}

const newest = (run, key) =>
    run.columns[key]?.steps.length > 0 ? run.columns[key].newest : undefined;
const valuesOf = (run, key) => run.columns[key]?.values ?? [];
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
// "2.5 at step 300": the best value of a column.
function best(run, key, sign, unit) {
  const values = valuesOf(run, key);
  if (values.length === 0) return '';
  const i = values.reduce((a, value, b) => sign * value > sign * values[a] ? b : a, 0);
  return `${quantity(values[i], unit)} at ${number(run.columns[key].steps[i])}`;
}

const kStates = {saved: 'stopped, saved', unknown: 'not known'};
function stateOf({about}) {
  const code = about.status?.exit_code;
  const words = `${kStates[about.state] ?? about.state}${code > 0 ? `, exit code ${code}` : ''}`;
  const live = about.state === 'running' || about.state === 'unknown';
  const silent = live && about.silent_s > 60 ? `, silent for ${duration(about.silent_s)}` : '';
  return html('span', {class: isBad(about) ? 'bad' : ''}, words + silent);
}
const isBad = ({state}) => state === 'failed' || state === 'killed';
// Last messages of runs that ended.
const messages = (runs) => runs.filter(({about}) => about.status?.message).map(({about}) =>
    html('p', {class: isBad(about) ? 'bad' : ''}, `${about.name}: ${about.status.message}`));
function stepOf(run) {
  const step = run.columns.loss?.steps.at(-1) ?? 0, wanted = run.about.steps_wanted;
  if (!wanted) return String(step);
  return html('span', {}, `${step} of ${wanted}`,
              html('progress', {max: wanted, value: step, 'aria-label': 'steps done'}));
}

const lastStart = (run) => run.about.starts.newest.at(-1);
// Ranks and device of a run: "8, cuda 9.0".
function ranksAndDevice(run) {
  const start = lastStart(run), ranks = newest(run, 'ranks') ?? start?.ranks;
  return [ranks === undefined ? '' : quantity(ranks, ''), start?.device].filter(Boolean).join(', ');
}

// Newest GPU figures of NVML: "93%, 612 W, 61 C".
function gpusOf(run) {
  const texts = [['device_busy_share_median', (x) => quantity(x, 'percent')],
                 ['device_watts_median', (x) => `${number(x)} W`],
                 ['device_celsius_max', (x) => `${number(x)} C`]];
  if (!('device_watts_median' in run.columns)) return '';
  return texts.map(([key, text]) => [newest(run, key), text])
      .filter(([value]) => value !== undefined && value !== null)
      .map(([value, text]) => text(value)).join(', ');
}

function summary(runs) {
  const item = runs[0]?.about.item ?? 'items';
  const some = (value, unit = '') => value === undefined ? '' : quantity(value, unit);
  const columns = {
    'Run': (run, i) => html('span', {}, keyOf(i % 6), run.about.name),
    'State': stateOf,
    'Step': stepOf,
    'Time left': ({about}) => about.seconds_left === null ? '' : duration(about.seconds_left),
    'Epoch': (run) => some(newest(run, 'epoch')),
    'Loss': (run) => some('loss' in run.columns ? run.columns.loss.newest : undefined),
    'Validation loss, best': (run) => best(run, 'val_loss', -1, ''),
    'Top-1, best': (run) => best(run, 'val_top1', 1, 'percent'),
    [`${item[0].toUpperCase()}${item.slice(1)}`]: (run) => some(newest(run, item)),
    [`${item}/s, median`]: (run) => some(median(valuesOf(run, `${item}_per_s`))),
    'Step, median': (run) => some(median(valuesOf(run, 'step_ms')), 'ms'),
    'MFU, median': (run) => some(median(valuesOf(run, 'mfu')), 'percent'),
    'Device memory': (run) => some(valuesOf(run, 'device_peak_bytes').at(-1), 'bytes'),
    'GPUs, median, hottest': gpusOf,
    'Parameters': (run) => some(lastStart(run)?.parameters || undefined),
    'Ranks, device': ranksAndDevice,
    'Time of steps': (run) => run.columns.step_ms ? duration(run.columns.step_ms.sum / 1000) : '',
    'Checkpoint': ({about}) => about.checkpoints.length ? `step ${about.checkpoints.at(-1)}` : '',
    'Restarts': ({about: {starts: {newest: list, left_out: older}}}) =>
        list.length > 1 ? String(list.length + older - 1) : '',
    'Warnings': ({about}) => {
      const count = about.warnings.newest.length + about.warnings.left_out;
      return count > 0 ? String(count) : '';
    },
  };
  const rows = runs.map((run, i) => Object.values(columns).map((cell) => cell(run, i)));
  const used = Object.keys(columns).map((_, c) => rows.some((row) => row[c] !== ''));
  const keep = (list) => list.filter((_, c) => used[c]);
  return table('Runs', keep(Object.keys(columns)), rows.map(keep));
}

function ranksOf(run) {
  const rows = Object.keys(run.columns).filter((key) => key.endsWith('_median')).flatMap((key) => {
    const base = key.replace(/_median$/, ''), of = (part) => newest(run, base + part);
    if (of('_median') === undefined || of('_median') === null) return [];
    const shown = (part) => quantity(of(part), unitOfKey(base));
    return [[figureName(base), shown('_min'), String(of('_min_rank') ?? ''), shown('_median'),
             shown('_max'), String(of('_max_rank') ?? '')]];
  });
  if (rows.length === 0 || !(newest(run, 'ranks') > 1)) return [];
  return [html('h2', {}, `${newest(run, 'ranks')} ranks of ${run.about.name}, ` +
                         `at step ${run.columns.ranks.steps.at(-1)}`),
          table('Ranks', ['Figure', 'Least', 'of rank', 'Median', 'Most', 'of rank'], rows)];
}

function differences(runs) {
  if (runs.length < 2) return [];
  const items = runs.slice(1).map((run) => html('li', {}, `${runs[0].about.name} and ` +
      `${run.about.name}: ${run.differs_at === null
          ? 'all losses that both have are the same to the bit'
          : `losses differ from step ${run.differs_at} on`}.`));
  return [html('h2', {}, 'Differences'), html('ul', {}, ...items), optionsOf(runs, true)];
}
// Tabulates the options of all runs: those that differ, or all.
function optionsOf(runs, isDiffering) {
  const optionsIn = (run) => run.about.options ?? {};
  const names = [...new Set(runs.flatMap((run) => Object.keys(optionsIn(run))))].sort();
  const shown = (value) => typeof value === 'string' ? value : JSON.stringify(value) ?? '–';
  const rows = names.map((name) => [name, ...runs.map((run) => shown(optionsIn(run)[name]))])
      .filter((row) => !isDiffering || new Set(row.slice(1)).size > 1);
  if (rows.length === 0) return html('p', {}, isDiffering ? 'All options are the same.' : 'None.');
  return table(isDiffering ? 'Options that differ' : 'Options',
               ['Option', ...runs.map((run) => run.about.name)], rows);
}

function picturesOf({about}) {
  if (about.pictures.length === 0) return [];
  const items = [...about.pictures].reverse().map(({name, png}) => html('figure', {}, png === ''
      ? html('p', {}, 'too large, or being written')
      : html('img', {alt: name, src: `data:image/png;base64,${png}`}),
      html('figcaption', {}, name)));
  return [html('h2', {}, `Pictures of ${about.name}`), html('div', {class: 'pictures'}, ...items)];
}
function samplesOf({about}) {
  const {newest, left_out: older} = about.samples;
  if (newest.length === 0) return [];
  const items = [...newest].reverse().flatMap(({tag, step, text}) => [
    html('h3', {}, `${tag}, step ${step}`), html('pre', {tabindex: 0}, text)]);
  return [html('h2', {}, `Samples of ${about.name}`), ...items,
          older === 0 ? '' : html('p', {}, `${older} older ones are in samples.jsonl.`)];
}
function startsOf({about}) {
  const {newest} = about.starts;
  if (newest.length + about.checkpoints.length === 0) return [];
  const rows = newest.map(({time, step, ranks, device}) =>
      [time, step === 0 ? 'the beginning' : `step ${step}`, String(ranks), device ?? '']);
  const steps = about.checkpoints.length ? `of steps ${about.checkpoints.join(', ')}` : 'none';
  return [html('h2', {}, `Starts and checkpoints of ${about.name}`),
          rows.length === 0 ? '' : table('Starts', ['Started', 'From', 'Ranks', 'Device'], rows),
          html('p', {}, `Checkpoints: ${steps}.`)];
}
function warningsOf({about}) {
  const {newest, left_out: older, unreadable: broken} = about.warnings;
  if (newest.length + broken === 0) return [];
  const rows = newest.map(({time, rank, level, text}) => [time, String(rank),
      html('span', level === 'error' ? {class: 'bad'} : {}, level), text]);
  return [html('h2', {}, `Warnings of ${about.name}`),
          older > 0 ? html('p', {}, `${older} older ones are in warnings.jsonl.`) : '',
          broken > 0 ? html('p', {}, `${broken} lines are not readable.`) : '',
          table('Warnings', ['Time', 'Rank', 'Level', 'Text'], rows)];
}

// ---- The page ----

let feed = null, drawnRest = '';

function draw() {
  const {runs} = feed, names = runs.map((run) => run.about.name).join(', ');
  document.title = `${names || 'no step yet'} - Shale`;
  byId('names').textContent = names || 'no step yet';
  const items = [...new Set(runs.map((run) => run.about.item))];
  const axes = ['step', ...items.concat('epoch').filter(
      (item) => runs.every((run) => run.columns[item]?.steps.length > 0))];
  const select = byId('axis');
  if (select.length !== axes.length) {
    select.replaceChildren(...axes.map((axis) => html('option', {}, axis)));
  }
  byId('runs').replaceChildren(summary(runs), ...messages(runs));
  if (!isLooking) {
    byId('charts').replaceChildren(...chartsOf(runs).map(
        (kind) => figureOf(kind, runs, select.value, byId('log').checked)).filter(Boolean));
  }
  // Only what has changed is replaced, so that text can be selected while a run goes on.
  const rest = JSON.stringify([runs.map((run) => ({...run.about, silent_s: 0, seconds_left: 0})),
                               runs.map((run) => run.columns.ranks)]);
  if (rest === drawnRest) return;
  drawnRest = rest;
  const isOpen = byId('rest').querySelector('details')?.open ?? false;
  const parts = [picturesOf, samplesOf, ranksOf, startsOf, warningsOf];
  byId('rest').replaceChildren(
      ...differences(runs), ...parts.flatMap((part) => runs.flatMap(part)).filter(Boolean),
      ...(runs.some((run) => run.about.options !== null)
          ? [html('h2', {}, 'Options'), html('details', isOpen ? {open: ''} : {},
              html('summary', {}, 'All options'), optionsOf(runs, false))] : []));
}

async function ask() {
  try {
    const answer = await fetch('feed.json', {cache: 'no-store'});
    feed = await answer.json();
    draw();
    byId('news').textContent = `live, at ${feed.time.slice(11, 19)} UTC`;
    byId('news').className = '';
  } catch {
    byId('news').textContent = 'shale watch does not answer: the page shows what it said last';
    byId('news').className = 'bad';
  }
  setTimeout(ask, 2000);
}

for (const id of ['axis', 'log']) byId(id).addEventListener('change', draw);
byId('view').addEventListener('submit', (event) => event.preventDefault());
const inlined = byId('feed').textContent;
if (inlined === '') {
  ask();
} else {
  feed = JSON.parse(inlined);
  byId('news').textContent = `as of ${feed.time.slice(0, 16).replace('T', ' ')} UTC`;
  draw();
}
