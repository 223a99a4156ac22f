//! The commands of a script.

use std::rc::Rc;

use super::lexer::{HereDocument, Word, is_name};

pub(super) type List = Vec<AndOr>;

/// Pipelines joined by `&&` and `||`.
#[derive(Debug, Clone, Default)]
pub(super) struct AndOr {
    pub(super) first: Pipeline,
    /// Whether it runs when the former succeeded, and what.
    pub(super) rest: Vec<(bool, Pipeline)>,
    pub(super) background: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pipeline {
    pub(super) commands: Vec<Command>,
    pub(super) negated: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) redirects: Vec<Redirect>,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Simple {
        assignments: Vec<Word>,
        words: Vec<Word>,
    },
    Group(List),
    Subshell(List),
    /// Conditions and what runs if they hold; then what runs if none does.
    If(Vec<(List, List)>, List),
    For {
        name: String,
        words: Option<Vec<Word>>,
        body: List,
    },
    /// `while`, or `until` if not `wanted`.
    While {
        wanted: bool,
        condition: List,
        body: List,
    },
    Case(Word, Vec<(Vec<Word>, List)>),
    Function(String, Rc<List>),
    /// The words of `[[ ]]`.
    Test(Vec<Word>),
    Arithmetic(String),
}

#[derive(Debug, Clone)]
pub(super) struct Redirect {
    pub(super) operator: &'static str,
    pub(super) target: Word,
    pub(super) document: Option<HereDocument>,
}

/// Calls `change` with every command, also nested ones.
pub(super) fn visit(list: &mut List, change: &mut impl FnMut(&mut Command)) {
    for item in list {
        let pipelines =
            std::iter::once(&mut item.first).chain(item.rest.iter_mut().map(|(_, pipeline)| pipeline));
        for command in pipelines.flat_map(|pipeline| &mut pipeline.commands) {
            change(command);
            match &mut command.kind {
                Kind::Group(list) | Kind::Subshell(list) => visit(list, change),
                Kind::Function(_, list) => visit(Rc::make_mut(list), change),
                Kind::For { body, .. } => visit(body, change),
                Kind::While { condition, body, .. } => {
                    visit(condition, change);
                    visit(body, change);
                }
                Kind::If(arms, otherwise) => {
                    for (condition, body) in arms {
                        visit(condition, change);
                        visit(body, change);
                    }
                    visit(otherwise, change);
                }
                Kind::Case(_, arms) => arms.iter_mut().for_each(|(_, body)| visit(body, change)),
                Kind::Simple { .. } | Kind::Test(_) | Kind::Arithmetic(_) => {}
            }
        }
    }
}

/// The parts of `NAME=…`, `NAME+=…` and `NAME[INDEX]=…`: name, index, whether it appends, value.
pub(super) fn assignment(raw: &str) -> Option<(&str, Option<&str>, bool, &str)> {
    let end = raw.find(['=', '[', '+'])?;
    let name = &raw[..end];
    if !is_name(name) {
        return None;
    }
    let (index, rest) = match raw[end..].strip_prefix('[') {
        None => (None, &raw[end..]),
        Some(inner) => {
            let close = inner.find("]=").or_else(|| inner.find("]+="))?;
            (Some(&inner[..close]), &inner[close + 1..])
        }
    };
    match rest.strip_prefix("+=") {
        Some(value) => Some((name, index, true, value)),
        None => Some((name, index, false, rest.strip_prefix('=')?)),
    }
}
