//! Decides `[ ]` and `[[ ]]`, as far as their operands are known.

use crate::marks::{Arg, is_mark};

/// Whether the condition holds; `None` if it can't be decided.
pub(super) fn decide(args: &[Arg], is_double: bool) -> Option<bool> {
    let text = |at: usize| args.get(at).map(|arg| arg.text.as_str());
    // Of several conditions the weakest operator decides first.
    let connectives = if is_double { [("||", true), ("&&", false)] } else { [("-o", true), ("-a", false)] };
    for (connective, is_or) in connectives {
        if let Some(at) = args.iter().position(|arg| arg.text == connective)
            && at > 0
            && args.len() > 3
        {
            let (left, right) = (decide(&args[..at], is_double), decide(&args[at + 1..], is_double));
            return match (left, right) {
                (Some(value), _) | (_, Some(value)) if value == is_or => Some(is_or),
                (Some(_), Some(_)) => Some(!is_or),
                _ => None,
            };
        }
    }
    if args.iter().any(|arg| arg.open) {
        return None;
    }
    match (args.len(), text(0)) {
        (0, _) => Some(false),
        (1, Some(word)) => is_empty(word).map(|empty| !empty),
        (_, Some("!")) => decide(&args[1..], is_double).map(|value| !value),
        (2, Some("-z")) => is_empty(text(1)?),
        (2, Some("-n")) => is_empty(text(1)?).map(|empty| !empty),
        (3, Some(left)) => compare(left, text(1)?, text(2)?, is_double),
        _ => None,
    }
}

/// Whether a text is empty; a known character decides.
fn is_empty(text: &str) -> Option<bool> {
    if text.is_empty() { Some(true) } else { text.chars().any(|c| !is_mark(c)).then_some(false) }
}

fn compare(left: &str, operator: &str, right: &str, is_double: bool) -> Option<bool> {
    if left.chars().chain(right.chars()).any(is_mark) {
        return None;
    }
    let equal = || if is_double { matches(right, left) } else { Some(left == right) };
    let numbers = || Some((left.trim().parse::<i64>().ok()?, right.trim().parse::<i64>().ok()?));
    match operator {
        "=" | "==" => equal(),
        "!=" => equal().map(|equal| !equal),
        "-eq" => numbers().map(|(left, right)| left == right),
        "-ne" => numbers().map(|(left, right)| left != right),
        "-lt" => numbers().map(|(left, right)| left < right),
        "-le" => numbers().map(|(left, right)| left <= right),
        "-gt" => numbers().map(|(left, right)| left > right),
        "-ge" => numbers().map(|(left, right)| left >= right),
        _ => None,
    }
}

/// Whether a pattern of `case` or `[[ ]]` matches; `None` for patterns with brackets.
pub(super) fn matches(pattern: &str, text: &str) -> Option<bool> {
    if pattern.contains(['[', '(', '\\']) {
        return None;
    }
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    if pattern.len().saturating_mul(text.len()) > 1 << 20 {
        return None;
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return Some(false);
        }
    }
    Some(pattern[p..].iter().all(|c| *c == '*'))
}
