//! Generates the text of YAML files, valid and invalid ones.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;

#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "a", "~", "null", "Null", "yes", "No", "ON", "off", "y", "n", "true", "False", "0", "-0", "007", "0o17",
    "0x1F", "0b11", "-0b11", "1_000", "_1", "1_", "0x_1", "+1", "1.", ".5", "-.5", "1e3", "1E+3", "1e-400",
    "1e400", "12e03", ".inf", "-.Inf", ".nan", ".NaN", "NaN", "12:30", "190:20:30", "2026-11-29",
    "2026-11-29T10:00:00Z", "2001-1-1", "=", "<<", "-", "?", ":", "--", "a:b", "a: b", "a #b", "a#b", "-a",
    "?a", ":a", "a,b", "a]b", "[a]", "{a}", "{a: b}", "[a, b: c]", "{}", "[]", "[a,]", "{a: , b}",
    "[? a : b]", "{\"a\":b}", "{a:b}", "[a:]", "%a", "@a", "`a", "|", ">", "a\u{a0}", "\u{a0}a",
    "\u{feff}a", "中文", "😀", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "-9223372036854775809", "0.1", "1e21", "100000000000000000000.0",
    "123456789.123456789", "0.30000000000000004", "5e-324", "1.7976931348623157e308", "", "!a", "!!str",
    "!!str 1", "!!int 1", "!!int \"1\"", "!!int a", "!!float 1", "!!bool yes", "!!bool \"yes\"",
    "!!null ''", "!!null a", "!!binary aGk=", "!!binary //8=", "!!timestamp 2026-11-29", "!!seq []",
    "!!map {}", "!!set {a}", "!!omap []", "!<tag:yaml.org,2002:str> 1", "!local 1", "! 1", "!!float a",
    "!!str {a: b}", "0777", "08", "0o8", "-017", "+0x1", "1__0", "1e", "e1", "0.", "+.5", "-",
];

const BREAKS: &[&str] =
    &["\n", "\r\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\n\n", "\n \n", "\n\t\n", "\n# c\n"];

#[rustfmt::skip]
const SEPARATORS: &[&str] = &[
    "---\n", "---\n", "---\n", "--- \n", "---\t\n", "--- # c\n", "---#c\n", "---\r\n", "--- a\n", "---a\n",
    "--- |\n", "...\n", "...\n---\n", "\n---\n\n", "# c\n---\n# d\n", "%YAML 1.1\n---\n",
    "%TAG !e! tag:e.org,2026:\n---\n", "---\n---\n", "---\n\u{feff}", "\u{feff}---\n", " ---\n",
    "---\n...\n", "...\n# c\n---\n", "... # c\n---\n", "----\n",
];

#[rustfmt::skip]
const INSERTS: &[&str] = &[
    "\r", "\n", "\t", " ", "\u{feff}", "\u{85}", "\u{2028}", "\u{a0}", "\u{200b}", "\0", "\u{7}", "\u{7f}",
    "\u{fffe}", "\n...\n", "\n---\n", "\n--- a\n", "%", "\"", "'", "#", " #", "&a ", "*a", "!", "!!str ",
    ": ", ":", "- ", "? ", "|", ">", "{", "}", "[", "]", ",", "\\", "@", "`", "\n  ", "\n\t", "<<: *a",
    "<<", "...", "\u{d7ff}", "\u{10ffff}",
];

/// A file of up to two documents, in places damaged.
pub(crate) fn file() -> impl Strategy<Value = String> {
    let damage = prop_oneof![
        6 => Just(Vec::new()),
        1 => vec((any::<proptest::sample::Index>(), select(INSERTS)), 1..3),
    ];
    let start = prop_oneof![8 => Just(""), 1 => select(SEPARATORS), 1 => Just("\u{feff}")];
    let end = prop_oneof![8 => Just(""), 1 => select(SEPARATORS)];
    let more = vec((prop_oneof![4 => Just("---\n"), 1 => select(SEPARATORS)], document()), 0..2);
    (start, document(), more, end, damage).prop_map(|(start, first, more, end, damage)| {
        let mut text = format!("{start}{first}");
        for (separator, document) in more {
            text += separator;
            text += &document;
        }
        text += end;
        for (index, insert) in damage {
            let at = index.index(text.len() + 1);
            let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.insert_str(at, insert);
        }
        text
    })
}

fn document() -> impl Strategy<Value = String> {
    vec(field(0), 0..4).prop_map(|fields| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {{b: c}}\n{}",
            fields.concat()
        )
    })
}

/// `key: value` with its line break, at an indentation.
fn field(indent: usize) -> BoxedStrategy<String> {
    (key(), properties(), value(indent), end_of_line())
        .prop_map(move |(key, properties, value, end)| {
            format!("{:indent$}{key}:{properties}{value}{end}", "", indent = indent)
        })
        .boxed()
}

fn key() -> BoxedStrategy<String> {
    prop_oneof![
        6 => select(&["spec", "x", "y1", "z-2", "a.b/c", "w w"][..]).prop_map(str::to_owned),
        2 => select(PLAIN).prop_map(str::to_owned),
        1 => quoted(),
        1 => select(&["<<", "? a\n", "*a ", "&b k", "!!str k", "\"<<\"", "? |\n  a\n", "[a]", "{a: b}"][..]).prop_map(str::to_owned),
        1 => (1usize..1100).prop_map(|length| "k".repeat(length)),
    ]
    .boxed()
}

fn properties() -> BoxedStrategy<String> {
    prop_oneof![
        12 => Just(" "),
        2 => Just(" &a "),
        1 => Just(" &b "),
        1 => Just(" !!str "),
        1 => Just(" !!map "),
        1 => Just(" &a !!str "),
        1 => Just(" !t &b "),
        1 => Just("\t"),
        1 => Just("  # c\n  "),
        1 => Just("\n    "),
        1 => Just(""),
    ]
    .prop_map(str::to_owned)
    .boxed()
}

fn end_of_line() -> BoxedStrategy<String> {
    prop_oneof![
        10 => Just("\n"),
        1 => select(BREAKS),
        1 => Just(" # c\n"),
        1 => Just(" \n"),
        1 => Just("\t\n"),
        1 => Just("\n      # c\n"),
        1 => Just("#c\n"),
    ]
    .prop_map(str::to_owned)
    .boxed()
}

fn value(indent: usize) -> BoxedStrategy<String> {
    let scalar = prop_oneof![
        5 => select(PLAIN).prop_map(str::to_owned),
        2 => quoted(),
        2 => block(indent),
        1 => number(),
        2 => select(&["*a", "*b", "[*a, *b]", "{<<: *a, c: d}", "{<<: [*a, *b]}", "{<<: {a: b}, a: c}", "{a: 1, <<: {a: 2}}", "&a {b: c}",
            "[&a x, *a]", "&a [b, c]", "{? a, ? b : c}", "{a: {b: {c: [d, {e: f}]}}}", "[a\n    , b]", "{a: b\n    , c: d}", "a\n    b\n\n    c",
            "[a, # c\n    b]", "- a", "{a: *a }", "{*a : b}", "[[[]]]", "[a b, c\td]", "{ \"a\" :b, 'c':d}", "{a: b: c}"][..]).prop_map(str::to_owned),
        1 => vec(select(PLAIN), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
        1 => vec((select(PLAIN), select(PLAIN)), 0..4).prop_map(|items| {
            let items: Vec<_> = items.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
            format!("{{{}}}", items.join(", "))
        }),
    ];
    if indent > 6 {
        return scalar.boxed();
    }
    let list = (0usize..4, vec((select(&["- ", "-   ", "-\t", "-\n      "][..]), value(indent + 4)), 1..4))
        .prop_map(move |(extra, items)| {
            let indent = indent + extra;
            items
                .into_iter()
                .map(|(dash, item)| format!("\n{:indent$}{dash}{item}", ""))
                .collect::<Vec<_>>()
                .concat()
        });
    let mapping = (1usize..4)
        .prop_flat_map(move |extra| vec(field(indent + extra), 1..4))
        .prop_map(|fields| format!("\n{}", fields.concat().trim_end_matches('\n')));
    prop_oneof![6 => scalar, 1 => list, 2 => mapping].boxed()
}

fn number() -> BoxedStrategy<String> {
    prop_oneof![
        any::<f64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:e}")),
        any::<i64>().prop_map(|number| number.to_string()),
        string_regex("[-+]?[0-9._]{1,8}([eE][-+]?[0-9]{1,3})?").expect("a pattern"),
        string_regex("[-+]?0[xob]?[0-9a-fA-F_]{1,6}").expect("a pattern"),
        string_regex("[0-9]{1,3}(:[0-9]{1,2}){1,2}(\\.[0-9])?").expect("a pattern"),
    ]
    .boxed()
}

fn quoted() -> BoxedStrategy<String> {
    let pieces = select(
        &[
            "a",
            " ",
            "\\n",
            "\\t",
            "\\x41",
            "\\u4e2d",
            "\\U0001F600",
            "\\\"",
            "\\ ",
            "\\/",
            "\\e",
            "\\0",
            "\\N",
            "\\_",
            "\\L",
            "\\P",
            "\\a",
            "\\q",
            "\n",
            "\n ",
            "\n\n ",
            "\\\n ",
            "\r\n ",
            "\t",
            "#",
            ": ",
            "'",
            "中",
            "\u{85}",
            "\u{2028}",
            "\n---\n",
            "\\uD83D\\uDE00",
            "\\ud800",
            "\u{feff}",
        ][..],
    );
    prop_oneof![
        vec(pieces.clone(), 0..6).prop_map(|it| format!("\"{}\"", it.concat())),
        vec(pieces, 0..6).prop_map(|it| format!("'{}'", it.concat().replace('\'', "''"))),
    ]
    .boxed()
}

fn block(indent: usize) -> BoxedStrategy<String> {
    let header = select(
        &["|", ">", "|-", ">-", "|+", ">+", "|2", ">1-", "|-2", "| # c", "|#c", "|9", "|0", "> ", "|\t"][..],
    );
    let line = select(
        &[
            "a",
            "a b ",
            "",
            " ",
            "  a",
            "\ta",
            "# c",
            "- a",
            "a: b",
            "\u{2028}b",
            "a\rb",
            "...",
            "---",
            "a\t",
            "\u{feff}a",
        ][..],
    );
    (header, 1usize..4, vec(line, 0..6), select(&["\n", "\r\n", "\n", "\n"][..]))
        .prop_map(move |(header, extra, lines, end)| {
            let indent = indent + extra;
            lines.iter().fold(header.to_owned(), |text, line| format!("{text}{end}{:indent$}{line}", ""))
        })
        .boxed()
}
