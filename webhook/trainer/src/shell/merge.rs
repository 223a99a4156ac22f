//! Joins the states at the ends of branches.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::expand::is_one_word_variable;
use super::state::{State, Value, Variable};
use super::tree::List;
use crate::marks::{Arg, Marks};

/// Values that differ in more ways than this are unknown.
const MAX_ALTERNATIVES: usize = 8;

/// The state after one of several branches was taken; `origin` says where the branches are. `None` without branches.
pub(super) fn merge(marks: &mut Marks, origin: &str, states: Vec<State>) -> Option<State> {
    let mut states = states.into_iter();
    let mut merged = states.next()?;
    let others: Vec<State> = states.collect();
    let all = std::iter::once(&merged).chain(&others);
    let names: BTreeSet<String> = all.flat_map(|state| state.variables.keys().cloned()).collect();
    for name in names {
        let first = merged.variables.get(&name);
        if others.iter().all(|other| other.variables.get(&name) == first) {
            continue;
        }
        let all = || std::iter::once(&merged).chain(&others);
        let variables: Vec<Option<&Variable>> = all().map(|state| state.variables.get(&name)).collect();
        let is_exported = variables.iter().flatten().all(|variable| variable.is_exported);
        let unset = if is_one_word_variable(&name) || merged.has_unknown_variables {
            let one_word = is_one_word_variable(&name);
            Some(Value::Text(String::from(marks.unknown(format!("${name}"), one_word))))
        } else {
            None
        };
        let value =
            |variable: Option<&Variable>| variable.map_or(unset.clone(), |variable| variable.value.clone());
        let values: Vec<Option<Value>> = variables.iter().map(|variable| value(*variable)).collect();
        let value = join(marks, &format!("${name} ({origin})"), &values);
        merged.variables.insert(name, Variable { value: Some(value), is_exported });
    }
    for other in others {
        if other.arguments != merged.arguments {
            merged.arguments = None;
        }
        merged.exports_all &= other.exports_all;
        merged.has_unknown_variables |= other.has_unknown_variables;
        merged.managers = merged.managers.max(other.managers);
        merge_surroundings(&mut merged, other);
    }
    Some(merged)
}

/// Merges functions, options, the folder and written files of another state; whether that changes anything.
pub(super) fn merge_surroundings(merged: &mut State, other: State) -> bool {
    let mut has_changed = merge_functions(&mut merged.functions, other.functions);
    has_changed |= merge_written(&mut merged.written, other.written);
    if merged.has_pipefail && !other.has_pipefail {
        merged.has_pipefail = false;
        has_changed = true;
    }
    // Which folder it is decides which program runs.
    if !merged.folder.is_empty() && merged.folder != other.folder {
        merged.folder.clear();
        has_changed = true;
    }
    has_changed
}

/// A function that only one of the branches defines may not exist, which is one that does nothing.
fn merge_functions(
    merged: &mut HashMap<String, Vec<Rc<List>>>,
    other: HashMap<String, Vec<Rc<List>>>,
) -> bool {
    let nothing = || vec![Rc::new(List::new())];
    let count = |all: &HashMap<String, Vec<Rc<List>>>| all.values().map(Vec::len).sum::<usize>();
    let before = count(merged);
    for (name, bodies) in merged.iter_mut() {
        if !other.contains_key(name) && bodies.iter().all(|body| !body.is_empty()) {
            bodies.extend(nothing());
        }
    }
    for (name, bodies) in other {
        let known = merged.entry(name).or_insert_with(nothing);
        for body in bodies {
            if !known.iter().any(|other| Rc::ptr_eq(other, &body)) {
                known.push(body);
            }
        }
    }
    count(merged) > before
}

fn merge_written(
    merged: &mut HashMap<String, Option<Rc<str>>>,
    mut other: HashMap<String, Option<Rc<str>>>,
) -> bool {
    let mut has_changed = false;
    for (path, text) in merged.iter_mut() {
        if other.remove(path).as_ref() != Some(text) && text.is_some() {
            *text = None;
            has_changed = true;
        }
    }
    has_changed |= !other.is_empty();
    merged.extend(other.into_keys().map(|path| (path, None)));
    has_changed
}

fn join(marks: &mut Marks, origin: &str, values: &[Option<Value>]) -> Value {
    let is_list = values.iter().any(|value| matches!(value, Some(Value::List(_))));
    let mut lists: Vec<Vec<Arg>> = Vec::new();
    for value in values {
        let list = match value {
            None if is_list => Vec::new(),
            None => vec![Arg { text: String::new(), open: true }],
            Some(Value::List(list)) => list.clone(),
            Some(Value::Text(text)) => vec![Arg { text: text.clone(), open: true }],
        };
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    if lists.len() == 1 {
        return match values.first() {
            Some(Some(value)) => value.clone(),
            _ => Value::Text(String::new()),
        };
    }
    if lists.len() > MAX_ALTERNATIVES {
        return Value::Text(String::from(marks.unknown(origin, false)));
    }
    if !is_list {
        return Value::Text(String::from(marks.one_of(origin, lists)));
    }
    // What all have in common stays known.
    let shortest = lists.iter().map(Vec::len).min().unwrap_or_default();
    let common = (0..shortest).take_while(|at| lists.iter().all(|list| list[*at] == lists[0][*at])).count();
    let mut list: Vec<Arg> = lists[0][..common].to_vec();
    let rests = lists.into_iter().map(|mut list| list.split_off(common)).collect();
    list.push(Arg { text: String::from(marks.one_of(origin, rests)), open: true });
    Value::List(list)
}
