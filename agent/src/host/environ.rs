//! The environment of a process.

/// The value of a variable in the content of `/proc/PID/environ`.
pub(crate) fn variable(environ: &[u8], name: &str) -> Option<String> {
    let mut variables = environ.split(|&c| c == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}
