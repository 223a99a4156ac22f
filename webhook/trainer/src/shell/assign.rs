//! Sets variables, and warns of assignments that set nothing.

use super::lexer::{Lexer, Token, Word, is_name};
use super::run::Interpreter;
use super::state::Value;
use super::tree::assignment;
use crate::lint::{Lint, tft_items};
use crate::marks::{Arg, has_mark};

impl Interpreter<'_> {
    /// `export A = "b"` and `A = b`, which set nothing.
    pub(super) fn lint_blanks(&mut self, words: &[Word]) {
        let Some(first) = words.first() else { return };
        let declares = matches!(first.raw.as_str(), "export" | "declare" | "local" | "readonly");
        let at = usize::from(declares);
        let (Some(name), Some(equals)) = (words.get(at), words.get(at + 1)) else { return };
        if is_name(&name.raw) && equals.raw.starts_with('=') && !equals.raw.starts_with("==") {
            self.lint(Lint::BlanksAroundEquals, name.raw.clone());
        } else if declares
            && assignment(&name.raw).is_some_and(|(.., value)| value.is_empty())
            && equals.line == name.line
            && !is_name(&equals.raw)
            && assignment(&equals.raw).is_none()
        {
            // `export A= "b"`.
            let name = name.raw.trim_end_matches('=').to_owned();
            self.lint(Lint::BlankBehindEquals, name);
        }
    }

    /// Sets a variable; `for_command` if only the command behind it sees it.
    pub(super) fn assign(&mut self, raw: &str, for_command: bool) {
        let Some((name, index, appends, value)) = assignment(raw) else { return };
        let (name, value) = (name.to_owned(), value.to_owned());
        if name == "LD_PRELOAD" {
            let keeps = appends || value.contains("LD_PRELOAD");
            let both = ["libtaskd.so", "libmspti.so"].iter().all(|library| value.contains(library));
            // Otherwise the blank has been reported.
            let is_meant = !value.is_empty() || !self.has_lint(Lint::BlankBehindEquals, "LD_PRELOAD");
            if !keeps && !both && is_meant {
                self.lint(Lint::PreloadOverwritten, "");
            }
        }
        let new = match value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            Some(inner) => Value::List(self.expand_list(inner)),
            None => Value::Text(self.expand_text(&value, false)),
        };
        if name == "MS_ENABLE_TFT"
            && let Value::Text(text) = &new
            && !has_mark(text)
            && tft_items(text).is_none()
        {
            self.lint(Lint::TftWithoutComma, text.clone());
        }
        if name == "TTP_LOG_PATH"
            && let Value::Text(text) = &new
            && text.len() > 1
            && text.starts_with('/')
            && !has_mark(text)
        {
            self.lint(Lint::LogFolderShared, text.trim_end_matches('/'));
        }
        if let Some(index) = index {
            let index = self.expand_text(index, true);
            if let Value::Text(text) = new {
                self.state.set(&format!("{name}[{index}]"), Some(Value::Text(text)));
            }
            // The array as a whole has an element that isn't in its list.
            let text = self.unknown(&format!("${{{name}[@]}}"), false);
            return self.state.set(&name, Some(Value::Text(text)));
        }
        let new = if appends { self.append_value(&name, new) } else { new };
        self.state.set(&name, Some(new));
        if for_command {
            self.state.export(&name);
        }
    }

    fn append_value(&mut self, name: &str, new: Value) -> Value {
        let old = self.state.variables.get(name).map(|variable| variable.value.clone());
        match (old, new) {
            (Some(Some(Value::List(mut list))), Value::List(more)) => {
                list.extend(more);
                Value::List(list)
            }
            (Some(Some(Value::Text(text))), Value::List(more)) => {
                let first = self.marks.split(&text);
                Value::List(first.into_iter().chain(more).collect())
            }
            (Some(Some(Value::Text(text))), Value::Text(more)) => Value::Text(text + &more),
            (Some(Some(Value::List(mut list))), Value::Text(more)) => {
                match list.first_mut() {
                    Some(first) => first.text.push_str(&more),
                    None => list.push(Arg::of(more)),
                }
                Value::List(list)
            }
            (Some(None), new) => new,
            (None, Value::Text(more)) => {
                let old = self.lookup(name, &format!("${name}")).unwrap_or_default();
                Value::Text(old + &more)
            }
            (None, list) => list,
        }
    }

    /// The words of `( … )` behind an assignment.
    fn expand_list(&mut self, inner: &str) -> Vec<Arg> {
        let mut args = Vec::new();
        let mut lexer = Lexer::new(inner);
        loop {
            match lexer.next(false) {
                // `[INDEX]=VALUE` has its place by the index.
                Ok(Token::Word(word)) if word.raw.starts_with('[') && word.raw.contains("]=") => {
                    let text = self.unknown("an array with indices", false);
                    args.push(Arg { text, open: true });
                }
                Ok(Token::Word(word)) => args.extend(self.expand_word(&word.raw)),
                Ok(Token::Newline) => {}
                Ok(Token::End) => return args,
                _ => {
                    let text = self.unknown("an array", false);
                    args.push(Arg { text, open: true });
                    return args;
                }
            }
        }
    }

    pub(super) fn declare(&mut self, command: &str, words: &[Word]) {
        if command == "local" && self.locals.is_empty() {
            // Outside of a function it sets nothing.
            self.status = Some(false);
            return;
        }
        let options: String =
            words.iter().filter(|word| word.raw.starts_with('-')).map(|word| word.raw.as_str()).collect();
        let exports = command == "export" || options.contains('x');
        let is_local = command == "local"
            || matches!(command, "declare" | "typeset") && !options.contains('g') && !self.locals.is_empty();
        if command != "export" && options.contains('n') {
            // A reference to a variable, through which any variable may be set.
            self.forget_variables(command);
        }
        for word in words.iter().filter(|word| !word.raw.starts_with(['-', '+'])) {
            if is_local {
                self.make_local(&word.raw);
            }
            let name = if let Some((name, ..)) = assignment(&word.raw) {
                let name = name.to_owned();
                self.assign(&word.raw, false);
                name
            } else if word.raw.contains("$(") || word.raw.contains('`') {
                // `export $(grep -v '^#' .env | xargs)` sets what the command prints.
                self.forget_variables(&word.raw);
                continue;
            } else {
                // `export "A=b"` and `export $NAMES`.
                let text = self.expand_text(&word.raw, false);
                match text.split_once('=') {
                    Some((name, value)) if is_name(name) => {
                        self.state.set(name, Some(Value::Text(value.to_owned())));
                        name.to_owned()
                    }
                    _ if has_mark(&text) => {
                        self.forget_variables(&word.raw);
                        continue;
                    }
                    _ => text,
                }
            };
            if command != "export" && options.contains(['i', 'l', 'u', 'c']) {
                // Its value is changed whenever it is set.
                let value = self.unknown(&format!("${name}"), options.contains('i'));
                self.state.set(&name, Some(Value::Text(value)));
            }
            if exports {
                self.state.export(&name);
            }
        }
        self.status = Some(true);
    }

    /// Keeps the value that a variable has outside of the running function.
    fn make_local(&mut self, word: &str) {
        let name = assignment(word).map_or(word, |(name, ..)| name).to_owned();
        let outer = self.state.variables.get(&name).cloned();
        let Some(frame) = self.locals.last_mut() else { return };
        if !frame.iter().any(|(other, _)| *other == name) {
            frame.push((name.clone(), outer));
        }
        if assignment(word).is_none() && is_name(&name) {
            self.state.set(&name, None);
        }
    }

    /// `(( … ))`, which may set a variable.
    pub(super) fn run_arithmetic(&mut self, expression: &str) {
        let name = expression.trim().trim_start_matches(['+', '-']);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        let assigns = rest.trim_start().starts_with('=') && !rest.trim_start().starts_with("==");
        if assigns || ["++", "--", "+=", "-=", "*=", "/="].iter().any(|op| expression.contains(op)) {
            let text = self.unknown(&format!("$(({expression}))"), true);
            self.state.set(name, Some(Value::Text(text)));
            self.status = None;
        } else {
            let text = self.expand_text(&format!("$(({expression}))"), true);
            self.status = (!has_mark(&text)).then(|| text != "0");
        }
    }
}
