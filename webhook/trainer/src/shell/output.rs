//! What commands print, and what is replaced by it.

use super::run::{Interpreter, MAX_DEPTH};
use super::state::Value;

impl Interpreter<'_> {
    /// Replaces `$(NAME)` of variables that are set; `$$(NAME)` is `$(NAME)`.
    pub(crate) fn replace_references(&self, text: &str) -> String {
        let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find('$') {
            replaced.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                replaced.push('$');
                rest = behind;
                continue;
            }
            let name = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')).map(|(name, _)| name);
            let value = name.and_then(|name| self.state.variables.get(name)?.value.as_ref());
            match (name, value) {
                (Some(name), Some(Value::Text(value))) => {
                    replaced.push_str(value);
                    rest = &rest[name.len() + 2..];
                }
                _ => replaced.push('$'),
            }
        }
        replaced + rest
    }

    /// How much has been printed.
    pub(super) fn printed(&self) -> usize {
        self.output.as_ref().map_or(0, String::len)
    }

    /// What was printed since `start` may not have been printed.
    pub(super) fn doubt_output(&mut self, start: usize) {
        if self.printed() > start {
            let mark = self.unknown("$(…), which depends on a condition", false);
            let output = self.output.get_or_insert_default();
            output.truncate(start);
            output.push_str(&mark);
        }
    }

    /// What a script prints that runs in `$( )`.
    pub(super) fn substitute(&mut self, script: &str, origin: &str) -> String {
        if self.depth == MAX_DEPTH {
            return self.unknown(origin, false);
        }
        if let Some(path) = script.trim_start().strip_prefix('<').filter(|path| !path.starts_with(['<', '(']))
        {
            // `$(<FILE)` is the text of a file.
            let path = self.expand_text(path.trim(), false);
            return match self.find(&path) {
                Some((_, text)) => text.trim_end_matches('\n').to_owned(),
                None => self.unknown(origin, false),
            };
        }
        let outer = self.output.replace(String::new());
        let (line, lost) = (self.line, self.lost_status.take());
        let may_exit = std::mem::take(&mut self.may_exit);
        let file = self.file.clone();
        self.in_subshell(|shell| shell.run_text(&file, script));
        if std::mem::replace(&mut self.may_exit, may_exit) {
            self.doubt_output(0);
        }
        (self.line, self.lost_status) = (line, lost);
        let printed = std::mem::replace(&mut self.output, outer).unwrap_or_default();
        printed.trim_end_matches('\n').to_owned()
    }

    /// Records that the present command prints something unknown.
    pub(super) fn print_unknown(&mut self, command: &str, one_word: bool) {
        if self.output.is_some() {
            let mark = self.unknown(&format!("$({command} …)"), one_word);
            self.output.get_or_insert_default().push_str(&mark);
        }
    }
}
