//! The value of the annotation `recover-strategy`.
//!
//! ascend-operator and ClusterD split the list at commas, compare exactly and ignore tokens that don't match:
//! `"recover, dump"` enables only `recover` (ascend-operator `env.go` `addEnvByStrategy`, ClusterD `common/utils.go`
//! `GetRecoverBaseInfo`). [`Strategies`] trims the tokens instead and offers the normalised list.

/// The values MindCluster documents (`15_yaml_configuration.md`).
pub const KNOWN: [&str; 6] = ["retry", "recover", "recover-in-place", "elastic-training", "dump", "exit"];

/// A parsed list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategies<'a> {
    raw: &'a str,
    tokens: Vec<&'a str>,
}

impl<'a> Strategies<'a> {
    /// Splits at commas and trims each token; empty tokens are dropped.
    pub fn parse(raw: &'a str) -> Self {
        Self { raw, tokens: raw.split(',').map(str::trim).filter(|token| !token.is_empty()).collect() }
    }

    /// The trimmed tokens, in the user's order.
    pub fn tokens(&self) -> &[&'a str] {
        &self.tokens
    }

    /// Whether one of `triggers` is in the list.
    pub fn triggered_by(&self, triggers: &[String]) -> bool {
        self.tokens.iter().any(|token| triggers.iter().any(|trigger| trigger == token))
    }

    /// Whether `dump` is the only strategy that acts: every job has `exit`, and MindCluster ignores unknown tokens.
    pub fn is_dump_only(&self) -> bool {
        let mut known = self.tokens.iter().filter(|token| KNOWN.contains(token));
        self.tokens.contains(&"dump") && known.all(|token| matches!(*token, "dump" | "exit"))
    }

    /// The list without blanks and empty tokens.
    pub fn normalised(&self) -> String {
        self.tokens.join(",")
    }

    /// Whether MindCluster would ignore a token for blanks around it.
    pub fn is_padded(&self) -> bool {
        self.raw.split(',').any(|token| token.trim() != token)
    }

    /// Tokens that MindCluster doesn't know and ignores.
    pub fn unknown(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.tokens.iter().copied().filter(|token| !KNOWN.contains(token))
    }
}

/// What the user may have meant by an unknown token.
pub fn hint(token: &str) -> Option<&'static str> {
    if token.contains(['，', '、', ';', '；', '|']) {
        return Some("separate strategies with a plain comma");
    }
    if token.contains(char::is_whitespace) {
        return Some("separate strategies with a comma, not with a blank");
    }
    let folded = token.to_ascii_lowercase().replace('_', "-");
    KNOWN.contains(&folded.as_str()).then_some("strategies are written in lower case with hyphens")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Vec<String> {
        vec!["dump".to_owned()]
    }

    #[test]
    fn triggers_match_exact_trimmed_tokens() {
        for (raw, expected) in [
            ("dump", true),
            ("recover,dump", true),
            ("recover, dump", true),
            ("\tdump\n", true),
            ("exit ,dump , retry", true),
            ("dumps", false),
            ("no-dump", false),
            ("Dump", false),
            ("recover，dump", false),
            ("recover dump", false),
            ("", false),
            (",,", false),
        ] {
            assert_eq!(Strategies::parse(raw).triggered_by(&dump()), expected, "{raw:?}");
        }
    }

    #[test]
    fn normalised_has_no_blanks_and_no_empty_tokens() {
        for (raw, normalised, padded) in [
            ("dump", "dump", false),
            ("recover, dump", "recover,dump", true),
            (" dump", "dump", true),
            ("recover,,dump,", "recover,dump", false),
            ("", "", false),
        ] {
            let strategies = Strategies::parse(raw);
            assert_eq!(strategies.normalised(), normalised, "{raw:?}");
            assert_eq!(strategies.is_padded(), padded, "{raw:?}");
        }
    }

    #[test]
    fn dump_acts_alone_beside_exit_and_unknown_tokens() {
        for (raw, expected) in [
            ("dump", true),
            ("exit, dump", true),
            ("dump,oops", true),
            ("recover,dump", false),
            ("dump,elastic-training", false),
            ("exit", false),
            ("", false),
        ] {
            assert_eq!(Strategies::parse(raw).is_dump_only(), expected, "{raw:?}");
        }
    }

    #[test]
    fn unknown_tokens_have_hints() {
        let unknown: Vec<_> = Strategies::parse("dump,Dump,recover，exit,foo").unknown().collect();
        assert_eq!(unknown, ["Dump", "recover，exit", "foo"]);
        assert!(hint("Dump").is_some());
        assert!(hint("recover，exit").is_some());
        assert!(hint("recover dump").is_some());
        assert!(hint("recover_in_place").is_some());
        assert_eq!(hint("foo"), None);
    }
}
