//! Reading the files named by `-f`.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use swansong::manifest::source::Source;

/// A larger input isn't read, since its text stays in memory.
const MAX_INPUT: u64 = 512 << 20;

/// Options of the input
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// File with Kubernetes objects, YAML or JSON; `-` is standard input. May be repeated [default: -]
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Input {
    /// Its name in messages.
    pub(crate) name: String,
    pub(crate) source: Source,
}

/// Name and text of a script.
pub(crate) type Script = (String, String);

impl Files {
    /// Reads all files; those that are scripts or programs aren't Kubernetes objects.
    pub(crate) fn read_with_scripts(&self) -> anyhow::Result<(Vec<Input>, Vec<Script>)> {
        let mut scripts = Vec::new();
        let mut inputs = Vec::new();
        for file in self.checked()? {
            let (name, text) = read_text(&file)?;
            if is_shell_script(&name, &text) || has_extension(&name, "py") {
                scripts.push((name, text));
            } else {
                inputs.push(Input { name, source: Source::new(text) });
            }
        }
        Ok((inputs, scripts))
    }

    /// Reads all files.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Input>> {
        self.checked()?.iter().map(|file| read(file)).collect()
    }

    /// The files; standard input without any.
    fn checked(&self) -> anyhow::Result<Vec<PathBuf>> {
        let files = if self.files.is_empty() { vec![PathBuf::from("-")] } else { self.files.clone() };
        if files.iter().filter(|file| is_standard_input(file)).count() > 1 {
            bail!("-f - is given twice, but standard input can be read once only; remove one");
        }
        Ok(files)
    }
}

/// Whether a file is a shell script, by its name or first line.
pub(crate) fn is_shell_script(name: &str, text: &str) -> bool {
    let interpreter = text.lines().next().and_then(|line| line.strip_prefix("#!")).unwrap_or_default();
    has_extension(name, "sh") || has_extension(name, "bash") || interpreter.contains("sh")
}

fn has_extension(name: &str, wanted: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == wanted)
}

fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// A file's name in messages, and its text.
pub(crate) fn read_text(file: &Path) -> anyhow::Result<(String, String)> {
    let name = if is_standard_input(file) { "standard input".to_owned() } else { file.display().to_string() };
    let text = bytes(file).and_then(text).with_context(|| name.clone())?;
    Ok((name, text))
}

fn read(file: &Path) -> anyhow::Result<Input> {
    let (name, text) = read_text(file)?;
    Ok(Input { name, source: Source::new(text) })
}

fn bytes(file: &Path) -> anyhow::Result<Vec<u8>> {
    if is_standard_input(file) {
        let mut bytes = Vec::new();
        if std::io::stdin().is_terminal() {
            eprintln!("swansong: reading standard input, Ctrl-D ends it; name a file with -f");
        }
        std::io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes).context("it can't be read")?;
        return within_limit(bytes);
    }
    let mut bytes = Vec::new();
    match File::open(file).and_then(|file| file.take(MAX_INPUT + 1).read_to_end(&mut bytes)) {
        Ok(_) => within_limit(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => anyhow!("there is no such file; check the path"),
            ErrorKind::IsADirectory => anyhow!("it is a directory; name the files in it, each with -f"),
            ErrorKind::PermissionDenied => anyhow!("it may not be read by this user; check its permissions"),
            _ => anyhow!("it can't be read: {error}"),
        }),
    }
}

fn within_limit(bytes: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    if bytes.len() as u64 > MAX_INPUT {
        bail!("it is larger than {} MiB; split it", MAX_INPUT >> 20);
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> anyhow::Result<String> {
    if matches!(bytes.as_slice(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        bail!("it is UTF-16 text; save it as UTF-8 (`iconv -f UTF-16 -t UTF-8`)");
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
        anyhow!(
            "line {line}: it isn't UTF-8 text (byte {valid}); save it as UTF-8 (`iconv -f GB18030 -t UTF-8`)"
        )
    })
}
