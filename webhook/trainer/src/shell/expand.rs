//! Expands words: quotes, variables, arithmetic and command substitutions.

use super::arithmetic;
use super::braces;
use super::lexer::{Word, part_length};
use super::run::Interpreter;
use super::state::Value;
use crate::marks::{Arg, has_mark, is_mark};
use crate::program::lists;

/// Variables that components set in the containers of a job to one word: ascend-operator, TaskD, torchrun, Volcano,
/// MindCluster's samples, the kubelet and the shell.
const ONE_WORD_VARIABLES: &str = "BASH_SOURCE HOME HOSTNAME LOCAL_RANK LOCAL_WORLD_SIZE LOGNAME MASTER_ADDR MASTER_PORT \
    MINDX_SERVER_DOMAIN MINDX_SERVER_IP MINDX_TASK_ID MS_LOCAL_WORKER MS_NODE_RANK MS_ROLE MS_SCHED_HOST \
    MS_SCHED_PORT MS_WORKER_NUM NODE_RANK OLDPWD PATH POD_IP PPID PWD RANDOM RANK SECONDS TTP_PORT UID USER \
    VC_TASK_INDEX WORLD_SIZE XDL_IP";
/// What separates words unless `IFS` is set.
const DEFAULT_SEPARATORS: &str = " \t\n";
/// A text that is longer than this isn't read.
const MAX_TEXT: usize = 1 << 16;
/// Options without a value of which the variable is named.
const MAX_EMPTY: usize = 16;

/// The words that a word becomes.
struct Fields {
    done: Vec<Arg>,
    current: Option<Arg>,
    /// Whether blanks stay, as in an assignment.
    joins: bool,
}

pub(super) enum Expanded {
    Text(String),
    Words(Vec<Arg>),
}

impl Interpreter<'_> {
    pub(super) fn expand_words(&mut self, words: &[Word]) -> Vec<Arg> {
        words.iter().flat_map(|word| self.expand_word(&word.raw)).collect()
    }

    /// The words that `raw` becomes.
    pub(super) fn expand_word(&mut self, raw: &str) -> Vec<Arg> {
        let args = match braces::expand(raw) {
            Some(words) => words.iter().flat_map(|word| self.expand_fields(word)).collect(),
            None => vec![Arg { text: self.unknown(raw, false), open: true }],
        };
        self.last_option.clear();
        if raw.starts_with("--") && raw.len() < 80 {
            self.last_option.push_str(raw);
        }
        args
    }

    /// Notes that `part` became nothing, if it is the value of an option that ends the text `before` it.
    fn note_empty_value(&mut self, before: &str, part: &str) {
        if self.empty_values.len() == MAX_EMPTY {
            return;
        }
        // No option is longer, and long texts may have many parts.
        let before = &before[before.ceil_char_boundary(before.len().saturating_sub(80))..];
        let option = match before.trim_end_matches('=').split_whitespace().next_back() {
            None => self.last_option.as_str(),
            Some(word) if before.ends_with(|c: char| c == '=' || c.is_whitespace()) => word,
            Some(_) => return,
        };
        if option.starts_with("--") {
            let noted = (option.to_owned(), part.chars().take(80).collect());
            if !self.empty_values.contains(&noted) {
                self.empty_values.push(noted);
            }
        }
    }

    fn expand_fields(&mut self, raw: &str) -> Vec<Arg> {
        let mut fields = Fields { done: Vec::new(), current: None, joins: false };
        self.expand_into(raw, false, &mut fields);
        fields.done.extend(fields.current);
        fields.done
    }

    /// The text that `raw` becomes where it isn't split into words; `quoted` in double quotes and here-documents.
    pub(super) fn expand_text(&mut self, raw: &str, quoted: bool) -> String {
        let mut fields = Fields { done: Vec::new(), current: None, joins: true };
        self.expand_into(raw, quoted, &mut fields);
        let text = fields.current.unwrap_or_default().text;
        if text.len() > MAX_TEXT { self.unknown("a very long value", false) } else { text }
    }

    pub(super) fn unknown(&mut self, origin: &str, one_word: bool) -> String {
        let origin: String = origin.chars().take(80).collect();
        String::from(self.marks.unknown(origin, one_word))
    }

    fn expand_into(&mut self, raw: &str, quoted: bool, fields: &mut Fields) {
        let mut rest = raw;
        while let Some(c) = rest.chars().next() {
            if self.is_exhausted() {
                return;
            }
            let length = match c {
                '$' => dollar_length(rest, quoted),
                '\\' | '`' => part_length(rest),
                '\'' | '"' if !quoted => part_length(rest),
                _ => c.len_utf8(),
            };
            let (part, behind) = rest.split_at(length);
            rest = behind;
            match c {
                '\\' => fields.literal(unescape(part, quoted)),
                '\'' if !quoted => fields.literal(inner(part, 1)),
                '"' if !quoted => {
                    fields.literal("");
                    self.expand_into(inner(part, 1), true, fields);
                }
                '$' | '`' => {
                    let expanded = self.expand_part(part, quoted);
                    if matches!(&expanded, Expanded::Text(text) if text.is_empty()) {
                        self.note_empty_value(&raw[..raw.len() - part.len() - behind.len()], part);
                    }
                    self.append(expanded, quoted, fields);
                }
                _ if is_mark(c) => self.append(Expanded::Text(part.to_owned()), quoted, fields),
                _ => fields.literal(part),
            }
        }
    }

    fn append(&mut self, expanded: Expanded, quoted: bool, fields: &mut Fields) {
        match expanded {
            Expanded::Text(text) if quoted || fields.joins => {
                self.spend(text.len());
                fields.literal(&text);
            }
            Expanded::Text(text) => self.append_split(&text, fields),
            Expanded::Words(words) => {
                for (at, word) in words.into_iter().enumerate() {
                    self.spend(word.text.len());
                    if at > 0 && fields.joins {
                        fields.literal(" ");
                    } else if at > 0 {
                        fields.done.extend(fields.current.take());
                    }
                    if quoted || fields.joins || !word.text.contains(char::is_whitespace) {
                        fields.literal(&word.text);
                        let current = fields.current.get_or_insert_default();
                        current.open |=
                            word.open || !quoted && word.text.chars().any(|c| self.marks.may_split(c));
                    } else {
                        self.append_split(&word.text, fields);
                    }
                }
            }
        }
    }

    /// Appends an unquoted text, which ends words at its blanks.
    fn append_split(&mut self, text: &str, fields: &mut Fields) {
        self.spend(text.len());
        let separators = match self.state.variables.get("IFS").and_then(|variable| variable.value.as_ref()) {
            Some(Value::Text(separators)) => separators.clone(),
            _ => DEFAULT_SEPARATORS.to_owned(),
        };
        if has_mark(&separators) || has_mark(text) && separators != DEFAULT_SEPARATORS {
            let current = fields.current.get_or_insert_default();
            current.text += &self.unknown("a text that is split at $IFS", false);
            current.open = true;
            return;
        }
        for c in text.chars() {
            if separators.contains(c) {
                fields.done.extend(fields.current.take());
            } else {
                let current = fields.current.get_or_insert_default();
                current.text.push(c);
                current.open |= self.marks.may_split(c);
            }
        }
    }

    fn expand_part(&mut self, part: &str, quoted: bool) -> Expanded {
        if let Some(expression) = part.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))")) {
            return Expanded::Text(self.expand_arithmetic(expression));
        }
        if part.starts_with("$(") {
            return Expanded::Text(self.substitute(inner(part, 2), part));
        }
        if part.starts_with('`') {
            let script = inner(part, 1).replace("\\`", "`").replace("\\$", "$").replace("\\\\", "\\");
            return Expanded::Text(self.substitute(&script, part));
        }
        if part.starts_with("$'") {
            let text = part.trim_start_matches('$').trim_matches('\'');
            return Expanded::Words(vec![Arg::of(text.replace("\\n", "\n").replace("\\t", "\t"))]);
        }
        if part.starts_with("${") {
            return self.expand_parameter(inner(part, 2), part, quoted);
        }
        match part.strip_prefix('$') {
            Some(name) if !name.is_empty() => self.lookup_words(name, part),
            _ => Expanded::Text(part.to_owned()),
        }
    }

    fn expand_arithmetic(&mut self, expression: &str) -> String {
        let text = self.expand_text(expression, true);
        let value = if has_mark(&text) {
            None
        } else {
            let mut lookup = |name: &str| match self.state.variables.get(name)?.value.as_ref() {
                Some(Value::Text(text)) => (!has_mark(text)).then(|| text.clone()),
                Some(Value::List(_)) => None,
                None => Some(String::new()),
            };
            arithmetic::evaluate(&text, &mut lookup)
        };
        value.map_or_else(|| self.unknown(&format!("$(({expression}))"), true), |value| value.to_string())
    }

    /// `$name`, `$1`, `$@` and other names.
    pub(super) fn lookup_words(&mut self, name: &str, origin: &str) -> Expanded {
        match (name, &self.state.arguments) {
            ("@" | "*", Some(arguments)) => Expanded::Words(arguments.clone()),
            ("@" | "*", None) => {
                Expanded::Words(vec![Arg { text: self.unknown(&format!("${name}"), false), open: true }])
            }
            _ => Expanded::Text(self.lookup(name, origin).unwrap_or_default()),
        }
    }

    /// The text of a variable or positional parameter; `None` if it is unset.
    pub(super) fn lookup(&mut self, name: &str, origin: &str) -> Option<String> {
        match name {
            "0" => return Some(self.state.script.clone()),
            "#" => {
                let count = self.state.arguments.as_ref().map(Vec::len);
                return Some(count.map_or_else(|| self.unknown("$#", true), |count| count.to_string()));
            }
            "?" | "$" | "!" | "-" => return Some(self.unknown(&format!("${name}"), true)),
            "IFS" if !self.state.variables.contains_key(name) => return Some(DEFAULT_SEPARATORS.to_owned()),
            _ => {}
        }
        if let Ok(number) = name.parse::<usize>() {
            return match &self.state.arguments {
                Some(arguments) => match arguments.get(number.checked_sub(1)?) {
                    Some(argument) => Some(argument.text.clone()),
                    // Behind a word that may be several, all others may have other numbers.
                    None if arguments.iter().any(|argument| argument.open) => {
                        Some(self.unknown(origin, false))
                    }
                    None => None,
                },
                None => Some(self.unknown(&format!("${number}"), false)),
            };
        }
        match self.state.variables.get(name) {
            Some(variable) => match variable.value.as_ref()? {
                Value::Text(text) => Some(text.clone()),
                Value::List(list) => Some(list.first().map(|arg| arg.text.clone()).unwrap_or_default()),
            },
            None if is_one_word_variable(name) => Some(self.unknown(&format!("${name}"), true)),
            None if self.state.has_unknown_variables => Some(self.unknown(&format!("${name}"), false)),
            None => None,
        }
    }
}

/// Whether components set a variable to one word: also the sizes and host lists of Volcano's tasks (`VC_WORKER_NUM`) and the
/// addresses of Services.
pub(super) fn is_one_word_variable(name: &str) -> bool {
    lists(ONE_WORD_VARIABLES, name)
        || name.starts_with("VC_") && (name.ends_with("_NUM") || name.ends_with("_HOSTS"))
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
}

impl Fields {
    /// Appends to the current word.
    fn literal(&mut self, text: &str) {
        self.current.get_or_insert_default().text.push_str(text);
    }
}

/// The length of the expansion with which `text` begins.
fn dollar_length(text: &str, quoted: bool) -> usize {
    let rest = &text[1..];
    match rest.chars().next() {
        Some('(' | '{') => part_length(text),
        Some('\'') if !quoted => part_length(text),
        Some(c) if c.is_ascii_alphabetic() || c == '_' => {
            1 + rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
        }
        Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => 2,
        _ => 1,
    }
}

/// A backslash with its character.
fn unescape(part: &str, quoted: bool) -> &str {
    match part.get(1..) {
        Some("\n" | "\r") | None => "",
        Some(c) if !quoted || matches!(c, "$" | "`" | "\"" | "\\") => c,
        Some(_) => part,
    }
}

/// Without `before` bytes at the start and the closing character at the end.
fn inner(part: &str, before: usize) -> &str {
    part.get(before..part.len().saturating_sub(1)).unwrap_or_default()
}
