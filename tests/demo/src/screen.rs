//! Printing for people.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
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

/// Standard output, with colours where they are wanted.
pub(crate) struct Screen {
    output: io::Stdout,
    colours: bool,
    started: Instant,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let output = io::stdout();
        Self { colours: output.is_terminal() && !unwanted, output, started: Instant::now() }
    }

    pub(crate) fn line(&self, text: impl Display) {
        // The reader may have closed the output; the cluster still has to be stopped in order.
        let _ = writeln!(&self.output, "{text}");
    }

    /// A coloured line.
    pub(crate) fn tinted(&self, tone: Tone, text: impl Display) {
        if self.colours {
            self.line(format_args!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()));
        } else {
            self.line(text);
        }
    }

    /// What begins now, with the seconds that have gone by.
    pub(crate) fn step(&self, text: &str) {
        self.line("");
        self.tinted(Tone::Heading, format_args!("[{:>2} s] {text}", self.started.elapsed().as_secs()));
    }

    /// Text with a margin.
    pub(crate) fn block(&self, text: &str) {
        for line in text.lines() {
            self.line(format_args!("    {line}"));
        }
    }
}

/// An error, on standard error.
pub(crate) fn failure(text: &str) {
    let _ = writeln!(io::stderr(), "demo: {text}");
}
