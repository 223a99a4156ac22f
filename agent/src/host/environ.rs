//! The environment of a process.

/// The file that the launcher hook keeps open while it is active.
pub(crate) const LAUNCHER_HOOK: &str = "swansong_launcher_hook.py";

/// The value of a variable in the content of `/proc/PID/environ`.
pub(crate) fn variable(environ: &[u8], name: &str) -> Option<String> {
    let mut variables = environ.split(|&c| c == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}
