# Links the libraries of this image into the folder OUT, which LD_PRELOAD names. It always succeeds: a Pod starts without
# the libraries as well. What was found is the container's termination message.
say() { printf '%s\n' "$1"; printf '%s\n' "$1" >>/dev/termination-log; } 2>/dev/null
# A link that can't be made leaves LD_PRELOAD without its file, so the library counts as missing.
link() { ln -sf "$1" "OUT/$2" && [ -f "OUT/$2" ] && return; say "warning=OUT/$2 can't be linked to $1"; return 1; }
libtaskd='' libmspti='' python=''
for name in python3 python; do
  command -v "$name" >/dev/null 2>&1 || continue
  path=$("$name" -B -c 'import importlib.util, os
spec = importlib.util.find_spec("taskd")
print(os.path.join(spec.submodule_search_locations[0], "..", "LIBTASKD") if spec else "")' 2>/dev/null)
  # Only the last line: a sitecustomize may print others.
  path=${path##*'
'}
  [ -f "$path" ] && libtaskd=${path%/taskd/../*}/LIBTASKD python=$(command -v "$name") && break
done
if [ -z "$libtaskd" ]; then
  for site in SITE_PATTERNS /*/lib/python3*/*-packages /*/*/lib/python3*/*-packages /*/*/*/lib/python3*/*-packages; do
    case $site in /proc/* | /sys/*) continue ;; esac
    [ -f "$site/LIBTASKD" ] && libtaskd=$site/LIBTASKD && break
  done
fi
if [ -z "$libtaskd" ]; then
  limit=''
  timeout 1 true 2>/dev/null && limit='timeout 20'
  found=$($limit find / -xdev -path '*/LIBTASKD' -type f -print 2>/dev/null; printf '%s\n' "$?")
  path=${found%%'
'*}
  case $path in /*) libtaskd=$path ;; esac
  case $found in *124) say 'warning=the search of the whole image was stopped after 20 s' ;; esac
fi
for path in "${ASCEND_TOOLKIT_HOME:-}/lib64/libmspti.so" LIBMSPTI_PATTERNS; do
  [ -f "$path" ] && libmspti=$path && break
done
if [ -n "$libtaskd" ]; then
  [ -L "$libtaskd" ] && say "warning=$libtaskd is a symbolic link, which TaskD refuses to load"
  site=${libtaskd%/taskd/*}
  prefix=${site%/lib*/python3*} version=${site##*/lib*/python3}
  version=python3${version%%/*}
  for path in "$python" "$prefix/bin/$version" "$prefix/bin/python3" "/usr/bin/$version" /usr/bin/python3; do
    [ -f "$path" ] && [ -x "$path" ] && printf '%s\n' "$path" >OUT/python && break
  done
  link "$libtaskd" libtaskd.so || libtaskd=''
fi
[ -z "$libmspti" ] || link "$libmspti" libmspti.so || libmspti=''
# Python reads .pth files in the user site directory of its version, which is here by PYTHONUSERBASE.
user=${PYTHONUSERBASE:-${HOME:-/root}/.local}
for minor in 7 8 9 10 11 12 13 14 15; do
  own=OUT/lib/python3.$minor/site-packages
  mkdir -p "$own" || break
  ln -sf HOOK/PTH HOOK/MODULE "$own/"
  [ -d "$user/lib/python3.$minor/site-packages" ] &&
    printf 'import site; site.addsitedir("%s")\n' "$user/lib/python3.$minor/site-packages" >"$own/user-site.pth"
done
say "libtaskd=$libtaskd"
say "libmspti=$libmspti"
exit 0
