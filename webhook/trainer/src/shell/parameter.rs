//! Expands `${ }` with its operators.

use super::condition::matches;
use super::expand::{Expanded, is_one_word_variable};
use super::lexer::is_name;
use super::run::Interpreter;
use super::state::Value;
use crate::marks::{Arg, has_mark, is_mark};

impl Interpreter<'_> {
    /// `${…}`; `inner` is without the braces.
    pub(super) fn expand_parameter(&mut self, inner: &str, part: &str, quoted: bool) -> Expanded {
        if let Some(name) = inner.strip_prefix('#').filter(|name| !name.is_empty()) {
            return Expanded::Text(self.length(name, part));
        }
        if inner.starts_with('!') {
            return Expanded::Text(self.unknown(part, false));
        }
        let end = match inner.chars().next() {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len())
            }
            Some(c) if c.is_ascii_digit() => inner.find(|c: char| !c.is_ascii_digit()).unwrap_or(inner.len()),
            Some(c) => c.len_utf8(),
            None => return Expanded::Text(String::new()),
        };
        let (name, mut rest) = inner.split_at(end);
        let mut value = None;
        if let Some(index) = rest.strip_prefix('[') {
            let Some((index, behind)) = index.split_once(']') else {
                return Expanded::Text(self.unknown(part, false));
            };
            rest = behind;
            if matches!(index, "@" | "*") {
                let mut list = self.list_of(name, part);
                if let Some(start) = rest.strip_prefix(':').and_then(|start| start.parse::<usize>().ok())
                    && list.iter().take(start).all(|arg| !arg.open)
                {
                    list.drain(..start.min(list.len()));
                    rest = "";
                }
                if rest.is_empty() {
                    let joins = quoted && index == "*";
                    let text = || list.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" ");
                    return if joins { Expanded::Text(text()) } else { Expanded::Words(list) };
                }
                return Expanded::Text(self.unknown(part, false));
            }
            value = Some(self.element(name, index, part));
        } else if rest.is_empty() {
            return self.lookup_words(name, part);
        } else if matches!(name, "@" | "*") {
            return self.arguments_from(rest, part);
        }
        let unset = value.is_none();
        let value = value.unwrap_or_else(|| self.lookup(name, part));
        let is_known_variable =
            !unset || self.state.variables.contains_key(name) || self.is_argument_known(name);
        if rest.is_empty() {
            return Expanded::Text(value.unwrap_or_default());
        }
        let (operator, word) = operator_of(rest);
        match operator {
            "-" | "=" => self.or_default(name, value, is_known_variable, word, part, quoted, operator),
            "?" => Expanded::Text(value.unwrap_or_default()),
            "+" => match value.as_deref() {
                None | Some("") => Expanded::Text(String::new()),
                Some(text) if text.chars().any(|c| !is_mark(c)) => {
                    Expanded::Text(self.expand_text(word, quoted))
                }
                Some(_) => {
                    let text = self.expand_text(word, quoted);
                    let alternatives =
                        vec![vec![Arg { text, open: true }], vec![Arg { text: String::new(), open: true }]];
                    Expanded::Text(String::from(self.marks.one_of(part, alternatives)))
                }
            },
            _ => Expanded::Text(self.transform(&value.unwrap_or_default(), operator, word, part)),
        }
    }

    /// `${@:2}`; other operators on all arguments aren't read.
    fn arguments_from(&mut self, operator: &str, part: &str) -> Expanded {
        let start = operator.strip_prefix(':').and_then(|start| start.trim().parse::<usize>().ok());
        match (start.and_then(|start| start.checked_sub(1)), &self.state.arguments) {
            (Some(start), Some(all)) if all.iter().take(start).all(|arg| !arg.open) => {
                Expanded::Words(all.iter().skip(start).cloned().collect())
            }
            _ => Expanded::Words(vec![Arg { text: self.unknown(part, false), open: true }]),
        }
    }

    /// `${#NAME}` and `${#NAME[@]}`.
    fn length(&mut self, name: &str, part: &str) -> String {
        let length = match name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")) {
            Some(name) => {
                let list = self.list_of(name, part);
                list.iter().all(|arg| !arg.open).then_some(list.len())
            }
            None if is_name(name) => {
                self.lookup(name, part).filter(|text| !has_mark(text)).map(|text| text.chars().count())
            }
            None => None,
        };
        length.map_or_else(|| self.unknown(part, true), |length| length.to_string())
    }

    fn is_argument_known(&self, name: &str) -> bool {
        name.parse::<usize>().is_ok() && self.state.arguments.is_some() || is_one_word_variable(name)
    }

    /// `${NAME:-word}` and `${NAME:=word}`. A variable that nothing is known of counts as unset if there is a default,
    /// and the report says so.
    #[allow(clippy::too_many_arguments)]
    fn or_default(
        &mut self,
        name: &str,
        value: Option<String>,
        is_known_variable: bool,
        word: &str,
        part: &str,
        quoted: bool,
        operator: &str,
    ) -> Expanded {
        let is_argument = name.parse::<usize>().is_ok();
        let text = match value {
            Some(text) if !text.is_empty() && (is_known_variable || is_argument || word.is_empty()) => {
                // All of it may be empty.
                if text.chars().all(|c| self.marks.may_split(c)) && is_known_variable {
                    let default = self.expand_text(word, quoted);
                    let alternatives =
                        vec![vec![Arg { text, open: true }], vec![Arg { text: default, open: true }]];
                    String::from(self.marks.one_of(part, alternatives))
                } else {
                    text
                }
            }
            Some(text) if !text.is_empty() => {
                self.assume_unset(name);
                self.expand_text(word, quoted)
            }
            _ => self.expand_text(word, quoted),
        };
        if operator == "=" {
            self.state.set(name, Some(Value::Text(text.clone())));
        }
        Expanded::Text(text)
    }

    pub(super) fn list_of(&mut self, name: &str, part: &str) -> Vec<Arg> {
        match self.state.variables.get(name).map(|variable| variable.value.clone()) {
            Some(Some(Value::List(list))) => list,
            Some(Some(Value::Text(text))) => {
                let open = text.chars().any(|c| self.marks.may_split(c));
                vec![Arg { text, open }]
            }
            Some(None) => Vec::new(),
            None => match self.lookup(name, part) {
                Some(text) => {
                    let open = text.chars().any(|c| self.marks.may_split(c));
                    vec![Arg { text, open }]
                }
                None => Vec::new(),
            },
        }
    }

    fn element(&mut self, name: &str, index: &str, part: &str) -> Option<String> {
        let index = self.expand_text(index, true);
        if let Some(Some(Value::Text(text))) =
            self.state.variables.get(&format!("{name}[{index}]")).map(|variable| variable.value.clone())
        {
            return Some(text);
        }
        let list = self.list_of(name, part);
        match (index.parse::<usize>(), list.iter().any(|arg| arg.open)) {
            (Ok(index), false) => list.get(index).map(|arg| arg.text.clone()),
            _ => Some(self.unknown(part, false)),
        }
    }

    /// The operators on a text that start scripts use.
    fn transform(&mut self, value: &str, operator: &str, word: &str, part: &str) -> String {
        let word = self.expand_text(word, true);
        if !has_mark(value) && !has_mark(&word) {
            let boundaries = || value.char_indices().map(|(at, _)| at).chain([value.len()]);
            let cut = |at: usize| matches(&word, &value[at..]) == Some(true);
            let keep = |at: usize| matches(&word, &value[..at]) == Some(true);
            let is_short = value.len() < 1024;
            match operator {
                "%" if is_short => {
                    return value[..boundaries().filter(|at| cut(*at)).max().unwrap_or(value.len())]
                        .to_owned();
                }
                "%%" if is_short => {
                    return value[..boundaries().find(|at| cut(*at)).unwrap_or(value.len())].to_owned();
                }
                "#" if is_short => return value[boundaries().find(|at| keep(*at)).unwrap_or(0)..].to_owned(),
                "##" if is_short => {
                    return value[boundaries().filter(|at| keep(*at)).max().unwrap_or(0)..].to_owned();
                }
                "//" | "/" if !word.contains(['*', '?', '[', '\\']) => {
                    let (from, to) = word.split_once('/').unwrap_or((&word, ""));
                    if !from.is_empty() {
                        let count = if operator == "/" { 1 } else { usize::MAX };
                        return value.replacen(from, to, count);
                    }
                }
                _ => {}
            }
        }
        let one_word =
            !value.contains(char::is_whitespace) && !value.chars().any(|c| self.marks.may_split(c));
        self.unknown(part, one_word && !value.is_empty())
    }
}

/// The operator behind the name in `${NAME…}`, without the colon, and what is behind it.
fn operator_of(rest: &str) -> (&str, &str) {
    for operator in [":-", ":=", ":+", ":?"] {
        if let Some(word) = rest.strip_prefix(operator) {
            return (&operator[1..], word);
        }
    }
    for operator in ["##", "%%", "//", "-", "=", "+", "?", "#", "%", "/"] {
        if let Some(word) = rest.strip_prefix(operator) {
            return (operator, word);
        }
    }
    ("other", rest)
}
