//! Evaluates the expressions of `$(( ))`.

/// The value of `expression`, if it is known; `lookup` returns the text of a variable.
pub(super) fn evaluate(expression: &str, lookup: &mut dyn FnMut(&str) -> Option<String>) -> Option<i64> {
    let mut parser = Parser { rest: expression, lookup, depth: 0 };
    let value = parser.level(0)?;
    parser.skip_blanks();
    parser.rest.is_empty().then_some(value)
}

struct Parser<'e, 'l> {
    rest: &'e str,
    lookup: &'l mut dyn FnMut(&str) -> Option<String>,
    depth: usize,
}

/// Operators from the weakest to the strongest.
const LEVELS: &[&[&str]] =
    &[&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];
const MAX_DEPTH: usize = 30;

impl Parser<'_, '_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn level(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = LEVELS.get(level) else { return self.atom() };
        let mut value = self.level(level + 1)?;
        loop {
            self.skip_blanks();
            let Some(operator) = operators.iter().find(|operator| self.rest.starts_with(**operator)) else {
                return Some(value);
            };
            self.rest = &self.rest[operator.len()..];
            // `**`, `<<`, `+=` and similar operators aren't read.
            if self.rest.starts_with(['=', '*', '<', '>', '+', '-', '&', '|']) {
                return None;
            }
            let other = self.level(level + 1)?;
            value = apply(operator, value, other)?;
        }
    }

    fn atom(&mut self) -> Option<i64> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let value = self.atom_at_depth();
        self.depth -= 1;
        value
    }

    fn atom_at_depth(&mut self) -> Option<i64> {
        self.skip_blanks();
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest;
            let value = self.level(0)?;
            self.skip_blanks();
            self.rest = self.rest.strip_prefix(')')?;
            return Some(value);
        }
        if let Some(rest) = self.rest.strip_prefix('-') {
            self.rest = rest;
            return self.atom()?.checked_neg();
        }
        if let Some(rest) = self.rest.strip_prefix('!') {
            self.rest = rest;
            return Some(i64::from(self.atom()? == 0));
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(number) = word.parse() {
            // A leading zero makes it octal.
            return (word == "0" || !word.starts_with('0')).then_some(number);
        }
        if word.is_empty() {
            return None;
        }
        let text = (self.lookup)(word)?;
        if text.trim().is_empty() { Some(0) } else { text.trim().parse().ok() }
    }
}

fn apply(operator: &str, left: i64, right: i64) -> Option<i64> {
    match operator {
        "||" => Some(i64::from(left != 0 || right != 0)),
        "&&" => Some(i64::from(left != 0 && right != 0)),
        "==" => Some(i64::from(left == right)),
        "!=" => Some(i64::from(left != right)),
        "<=" => Some(i64::from(left <= right)),
        ">=" => Some(i64::from(left >= right)),
        "<" => Some(i64::from(left < right)),
        ">" => Some(i64::from(left > right)),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_values_or_none() {
        let mut lookup = |name: &str| match name {
            "N" => Some("8".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (expression, expected) in [
            ("1 + 2*3", Some(7)),
            ("(1+2)*3", Some(9)),
            (" N / 2 - 1 ", Some(3)),
            ("N*X", None),
            ("EMPTY", Some(0)),
            ("8/0", None),
            ("-N", Some(-8)),
            ("N >= 8 && N != 7", Some(1)),
            ("i++", None),
            ("2**3", None),
            ("010", None),
            ("9223372036854775807+1", None),
            ("", None),
        ] {
            assert_eq!(evaluate(expression, &mut lookup), expected, "{expression}");
        }
        assert_eq!(evaluate(&"(".repeat(100_000), &mut lookup), None);
        assert_eq!(evaluate(&"-".repeat(100_000), &mut lookup), None);
    }
}
