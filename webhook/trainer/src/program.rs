//! Names of programs, and lists of names.

/// Whether `name` is in a list of words.
pub(crate) fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|word| word == name)
}

/// The last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The lines of a Python program that aren't comments.
pub(crate) fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with('#'))
}

/// Whether a program runs Python code.
pub(crate) fn is_interpreter(name: &str) -> bool {
    matches!(
        name,
        "torchrun"
            | "msrun"
            | "deepspeed"
            | "accelerate"
            | "torch_npu_run"
            | "llamafactory-cli"
            | "swift"
            | "ray"
    ) || is_python(name)
}

pub(crate) fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}
