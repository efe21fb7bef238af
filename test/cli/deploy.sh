#!/usr/bin/env bash
# Checks deploy/: scripts and recipes parse, build recipes name every dependency of Shale, and
# Kubernetes manifests match the operators' schemas. Does not run them on their platforms.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root/deploy" || exit 1

for script in slurm/*.sbatch; do
  bash -n "$script" 2>"$work/output" || fail "$script"
done

# Checks the manifests against tables of the operators' fields.
tables=("$root"/test/fixtures/kubernetes/*.txt)
for manifest in kubernetes/*.yaml; do
  "$MANIFEST_CHECK" "$manifest" "${tables[@]}" >"$work/output" || fail "$manifest"
done
# A run that was asked to stop has an exit code that causes a restart. Exit codes of errors that
# would occur again do not.
for manifest in kubernetes/jobset.yaml kubernetes/trainjob.yaml; do
  grep -A 1 'action: Ignore' $manifest | grep -q 'values: \[75\]' ||
    fail "$manifest: 75 is no reason to go on"
  grep -A 1 'action: FailJob$' $manifest | grep -q 'values: \[64, 65, 66, 77\]' ||
    fail "$manifest: wrong options are tried again"
done
grep -A 3 'Launcher:' kubernetes/mpijob.yaml | grep -q 'restartPolicy: OnFailure' ||
  fail 'mpijob.yaml: 75 is no reason to go on'
# refused MANIFEST FROM TO WORDS: the check must refuse the manifest after FROM is replaced by TO.
refused() {
  sed "s#$2#$3#" "kubernetes/$1" >"$work/changed.yaml"
  cmp -s "kubernetes/$1" "$work/changed.yaml" && fail "$1 has no '$2'"
  "$MANIFEST_CHECK" "$work/changed.yaml" "${tables[@]}" >"$work/output"
  [[ $? == 1 ]] || fail "$1 is taken with '$3'"
  grep -qF "$4" "$work/output" || fail "$1 with '$3': no word of '$4'"
}
refused mpijob.yaml 'slotsPerWorker: 8' 'slots: 8' 'slots: MPIJob has no such field'
refused mpijob.yaml 'slotsPerWorker: 8' 'slotsPerWorker: "8"' 'is of type string, expected integer'
refused mpijob.yaml 'restartPolicy: OnFailure' 'restartPolicy: ExitCode' 'expected Never|OnFailure'
refused mpijob.yaml '- name: launcher' '- workingDir: /' 'containers[0]: has no name'
refused mpijob.yaml '\*mounts' '*mount' "there is no anchor of '*mount'"
refused jobset.yaml 'action: FailJobSet' 'action: Fail' 'rules[0].action is Fail, expected FailJobSet|'
refused jobset.yaml 'defaultMode: 0400' 'mode: 0400' '[0].secret.mode: JobSet has no such field'
refused trainjob.yaml 'numNodes: 4' 'nodes: 4' 'mlPolicy.nodes: TrainingRuntime has no such field'
refused trainjob.yaml 'command: ' 'commands: ' 'trainer.commands: TrainJob has no such field'
refused kueue.yaml v1beta2 v1beta1 'kueue.x-k8s.io/v1beta1 ResourceFlavor: no operator takes it'

# scripts_of FILE: prints the RUN commands of a Containerfile, or the script sections of an
# Apptainer file.
scripts_of() {
  awk '
    FILENAME ~ /Containerfile$/ {
      if (/^#/) next
      if (!continues && !/^(ARG|FROM|RUN|COPY|USER|WORKDIR|CMD|ENV|ENTRYPOINT|EXPOSE)( |$)/ && NF)
        print "no instruction: " $0 >"/dev/stderr"
      if (!continues) is_run = sub(/^RUN /, "")
      continues = /\\$/
      if (is_run) print
      next
    }
    /^%/ { is_script = /^%(post|environment|runscript|test)$/
           if (!is_script && !/^%(files|labels|help)$/) print "no section: " $0 >"/dev/stderr"
           next }
    is_script { print }' "$1"
}
for file in containers/*; do
  scripts_of "$file" >"$work/script" 2>"$work/output"
  sh -n "$work/script" 2>>"$work/output"
  [[ ! -s $work/output && -s $work/script ]] || fail "$file does not parse"
  while read -r package; do
    grep -qE "(^|[ ])$(sed 's/+/[+]/g' <<<"$package")( |\$)" "$work/script" ||
      fail "$file: no $package, which third_party/bootstrap.sh --minimal has"
  done < <("$root/third_party/bootstrap.sh" --minimal --list)
done

# Runs vcpkg's port with stubs of vcpkg's functions. It must name a source tree that can be built.
"$JSON_VALUE" vcpkg/shale/vcpkg.json /name >"$work/output" || fail 'vcpkg.json is no JSON'
cat >"$work/port.cmake" <<'CMAKE'
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "SOURCE_PATH" "OPTIONS")
  if(NOT EXISTS ${port_SOURCE_PATH}/CMakePresets.json OR NOT port_OPTIONS)
    message(FATAL_ERROR "no tree: ${port_SOURCE_PATH}")
  endif()
endfunction()
function(vcpkg_cmake_install)
endfunction()
function(vcpkg_cmake_config_fixup)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 port "" "" "FILE_LIST")
  if(NOT EXISTS ${port_FILE_LIST})
    message(FATAL_ERROR "no license: ${port_FILE_LIST}")
  endif()
endfunction()
include(${PORT})
CMAKE
cmake -DPORT="$root/deploy/vcpkg/shale/portfile.cmake" -DCURRENT_PACKAGES_DIR="$work/packages" \
  -P "$work/port.cmake" >"$work/output" 2>&1 || fail 'portfile.cmake'
version=$(sed -nE 's/^project\(Shale VERSION ([0-9.]+) .*/\1/p' "$root/CMakeLists.txt")
[[ $("$JSON_VALUE" vcpkg/shale/vcpkg.json /version) == "\"$version\"" ]] ||
  fail "vcpkg.json is not of version $version"

if command -v python3 >/dev/null; then
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' \
    spack/packages/shale/package.py 2>"$work/output" || fail 'package.py'
else
  echo 'skipped: no python3 is installed, so nobody parsed the recipe of Spack'
fi
# Checks that the CMake options which the recipes set exist.
while read -r option; do
  grep -qE "\b$option\b" "$root/CMakeLists.txt" "$root"/cmake/*.cmake || fail "no option $option"
done < <(grep -ohE 'SHALE_[A-Z_]+' spack/packages/shale/package.py vcpkg/shale/portfile.cmake \
           containers/* | sort -u)
finish
