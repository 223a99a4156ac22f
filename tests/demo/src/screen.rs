//! Printing for people.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How a line is coloured.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    Heading,
    /// Something that is as it should be, or was added.
    Good,
    /// Something that isn't, or was taken away.
    Bad,
    /// Something beside the point.
    Faint,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Heading => "1",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Faint => "2",
        }
    }
}

/// What begins an act; everything up to the next one fits on one screen of a terminal.
pub const ACT: &str = "── ";
/// Longer lines would be broken by a terminal.
const WIDTH: usize = 120;

/// An output with colours where they are wanted.
pub struct Screen {
    output: Mutex<Box<dyn Write + Send>>,
    colours: bool,
    started: Instant,
}

impl Screen {
    /// Writes to standard output.
    pub fn standard() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colours: io::stdout().is_terminal() && !unwanted, ..Self::new(io::stdout()) }
    }

    /// Writes to any output, without colours.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self { output: Mutex::new(Box::new(output)), colours: false, started: Instant::now() }
    }

    pub(crate) fn line(&self, text: impl Display) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        // The reader may have closed the output; the cluster still has to be stopped in order.
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }

    /// A coloured line, cut where it is too long.
    pub(crate) fn tinted(&self, tone: Tone, text: impl Display) {
        let text = cut(&text.to_string());
        if self.colours {
            self.line(format_args!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()));
        } else {
            self.line(text);
        }
    }

    /// What is done now, with the seconds that have gone by.
    pub(crate) fn step(&self, text: &str) {
        self.tinted(Tone::Heading, format_args!("[{:>2} s] {text}", self.started.elapsed().as_secs()));
    }

    /// A heading of what follows.
    pub(crate) fn act(&self, title: &str) {
        self.line("");
        self.tinted(Tone::Heading, format_args!("{ACT}{title}"));
    }

    /// Text with a margin.
    pub(crate) fn block(&self, text: &str) {
        for line in text.lines() {
            self.line(format_args!("    {}", cut(line)));
        }
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// An error, on standard error.
pub(crate) fn failure(text: &str) {
    let _ = writeln!(io::stderr(), "demo: {text}");
}
