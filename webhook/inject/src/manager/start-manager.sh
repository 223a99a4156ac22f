# Runs the TaskD Manager, the program in $1, with a Python that has TaskD. Without one it waits, since a sidecar that ends
# again and again could keep the training from starting.
trap 'exit 0' TERM
for script in /usr/local/Ascend/cann/set_env.sh /usr/local/Ascend/ascend-toolkit/set_env.sh; do
  if [ -r "$script" ] && (. "$script") >/dev/null 2>&1; then
    . "$script" >/dev/null 2>&1
    break
  fi
done
found=''
[ -r OUT/python ] && read -r found <OUT/python
for python in "$found" python3 python; do
  command -v "$python" >/dev/null 2>&1 || continue
  if "$python" -B -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("taskd") is None)' 2>/dev/null; then
    exec "$python" -u -c "$1"
  fi
done
echo 'swansong manager: no Python of this image has the package taskd, so there is no TaskD Manager' >&2
while :; do sleep 3600 & wait; done
