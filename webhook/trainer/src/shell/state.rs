//! What a shell knows at a point of a script.

use std::collections::HashMap;
use std::rc::Rc;

use super::tree::List;
use crate::marks::Arg;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// The text with its marks.
    Text(String),
    /// The words of an array.
    List(Vec<Arg>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// `None` if it is known to be unset.
    pub(super) value: Option<Value>,
    pub(super) is_exported: bool,
}

/// Why a list of commands ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Exit,
    Return,
    /// `break` or `continue`.
    Iteration {
        breaks: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) variables: HashMap<String, Variable>,
    /// The bodies of functions; several if it isn't known which definition counts.
    pub(super) functions: HashMap<String, Vec<Rc<List>>>,
    /// `$1` and so on; `None` if they aren't known.
    pub(super) arguments: Option<Vec<Arg>>,
    /// The name of the script, `$0`.
    pub(super) script: String,
    /// Where `cd` went.
    pub(super) folder: String,
    pub(super) has_pipefail: bool,
    /// Whether `set -a` exports every variable.
    pub(super) exports_all: bool,
    /// Whether a variable that isn't in `variables` may be set.
    pub(super) has_unknown_variables: bool,
    /// How many TaskD Managers were started.
    pub(super) managers: usize,
    /// Files that scripts write, by the path as it was written; `None` if their text isn't known.
    pub(super) written: HashMap<String, Option<Rc<str>>>,
    pub(super) end: Option<End>,
}

impl State {
    pub(super) fn new(script: String, arguments: Option<Vec<Arg>>, has_unknown_variables: bool) -> Self {
        Self {
            variables: HashMap::new(),
            functions: HashMap::new(),
            arguments,
            script,
            folder: String::new(),
            has_pipefail: false,
            exports_all: false,
            has_unknown_variables,
            managers: 0,
            written: HashMap::new(),
            end: None,
        }
    }

    /// The state in which a script that this one calls starts.
    pub(super) fn of_child(&self, script: String, arguments: Option<Vec<Arg>>) -> Self {
        let exported = self.variables.iter().filter(|(_, variable)| variable.is_exported);
        Self {
            variables: exported.map(|(name, variable)| (name.clone(), variable.clone())).collect(),
            folder: self.folder.clone(),
            managers: self.managers,
            written: self.written.clone(),
            ..Self::new(script, arguments, self.has_unknown_variables)
        }
    }

    /// The state of the outer shell after an inner one ended: what the inner one did outside of the shell stays.
    pub(super) fn after(self, inner: Self) -> Self {
        Self { managers: inner.managers, written: inner.written, ..self }
    }

    pub(super) fn set(&mut self, name: &str, value: Option<Value>) {
        let variable =
            self.variables.entry(name.to_owned()).or_insert(Variable { value: None, is_exported: false });
        variable.value = value;
        variable.is_exported |= self.exports_all;
    }

    /// About how many bytes a copy takes.
    pub(super) fn size(&self) -> usize {
        let of_value = |variable: &Variable| match &variable.value {
            Some(Value::Text(text)) => text.len(),
            Some(Value::List(list)) => list.iter().map(|arg| arg.text.len() + size_of::<Arg>()).sum(),
            None => 0,
        };
        let variables = self.variables.iter().map(|(name, variable)| name.len() + of_value(variable) + 64);
        variables.sum::<usize>() + 64 * (self.functions.len() + self.written.len())
    }

    pub(super) fn export(&mut self, name: &str) {
        if let Some(variable) = self.variables.get_mut(name) {
            variable.is_exported = true;
        }
    }

    /// Whether a walk through the same commands would have the same result.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.variables == other.variables && self.arguments == other.arguments && self.end == other.end
    }
}
