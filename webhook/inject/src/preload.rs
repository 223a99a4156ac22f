//! Joins the libraries with the user's `LD_PRELOAD`.

use swansong_api::preload::{entries, file_name};

use crate::policy::PreloadOrder;

/// A value of `LD_PRELOAD` with libraries added.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined<'p> {
    /// The new value, in which the user's part is unchanged.
    pub value: String,
    /// The added libraries.
    pub added: Vec<&'p str>,
}

/// Adds to the value `user` the libraries that it lacks; `None` if it has all of them.
///
/// A library of the user with the same file name counts, even at another path: loading two different ones of them fails.
pub fn join<'p>(ours: &[&'p str], user: &str, order: PreloadOrder) -> Option<Joined<'p>> {
    let has = |path: &str| entries(user).any(|entry| file_name(entry) == file_name(path));
    let added: Vec<&str> = ours.iter().copied().filter(|path| !has(path)).collect();
    if added.is_empty() {
        return None;
    }
    let list = added.join(":");
    let value = match order {
        _ if user.is_empty() => list,
        PreloadOrder::First => format!("{list}:{user}"),
        PreloadOrder::Last => format!("{user}:{list}"),
    };
    Some(Joined { value, added })
}

/// The value without `libraries`; `None` if it has none of them. The inverse of [`join`] restores the user's value exactly.
pub fn remove(value: &str, libraries: &[String]) -> Option<String> {
    let list = libraries.join(":");
    let rest = if value == list {
        Some("")
    } else {
        let first = value.strip_prefix(&list).and_then(|rest| rest.strip_prefix(':'));
        first.or_else(|| value.strip_suffix(&list).and_then(|rest| rest.strip_suffix(':')))
    };
    let ours = |entry: &&str| libraries.iter().any(|library| library == entry);
    if let Some(rest) = rest.filter(|rest| !entries(rest).any(|entry| ours(&entry))) {
        return Some(rest.to_owned());
    }
    let kept: Vec<&str> = entries(value).filter(|entry| !ours(entry)).collect();
    (kept.len() < entries(value).count()).then(|| kept.join(":"))
}

/// `ours` and a reference to the variable with the user's value.
pub fn join_reference(ours: &[&str], variable: &str, order: PreloadOrder) -> String {
    let ours = ours.join(":");
    match order {
        PreloadOrder::First => format!("{ours}:$({variable})"),
        PreloadOrder::Last => format!("$({variable}):{ours}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [&str; 2] = ["/m/libmspti.so", "/t/libtaskd.so"];

    #[test]
    fn joins_and_removes() {
        for (user, first) in [
            ("", Some("/m/libmspti.so:/t/libtaskd.so")),
            (" : ", Some("/m/libmspti.so:/t/libtaskd.so: : ")),
            ("/usr/lib/libjemalloc.so.2", Some("/m/libmspti.so:/t/libtaskd.so:/usr/lib/libjemalloc.so.2")),
            ("/a.so /b.so:/c.so", Some("/m/libmspti.so:/t/libtaskd.so:/a.so /b.so:/c.so")),
            ("/t/libtaskd.so:/a.so", Some("/m/libmspti.so:/t/libtaskd.so:/a.so")),
            ("/t/libtaskd.so.1", Some("/m/libmspti.so:/t/libtaskd.so:/t/libtaskd.so.1")),
            ("$(LIBDIR)/a.so", Some("/m/libmspti.so:/t/libtaskd.so:$(LIBDIR)/a.so")),
            ("/conda/libtaskd.so", Some("/m/libmspti.so:/conda/libtaskd.so")),
            ("/t/libtaskd.so:/m/libmspti.so", None),
            ("/a.so:/x/libmspti.so /t/libtaskd.so", None),
        ] {
            for order in [PreloadOrder::First, PreloadOrder::Last] {
                let joined = join(&OURS, user, order);
                if order == PreloadOrder::First {
                    assert_eq!(joined.as_ref().map(|joined| joined.value.as_str()), first, "{user:?}");
                }
                if let Some(Joined { value, added }) = joined {
                    assert_eq!(join(&OURS, &value, order), None, "{user:?}");
                    let added: Vec<String> = added.into_iter().map(str::to_owned).collect();
                    assert_eq!(remove(&value, &added).as_deref(), Some(user));
                }
            }
        }
    }

    #[test]
    fn orders_are_exact() {
        let joined = |order| join(&OURS, "/a.so", order).expect("joined").value;
        assert_eq!(joined(PreloadOrder::First), "/m/libmspti.so:/t/libtaskd.so:/a.so");
        assert_eq!(joined(PreloadOrder::Last), "/a.so:/m/libmspti.so:/t/libtaskd.so");
        assert_eq!(join_reference(&OURS, "X", PreloadOrder::First), "/m/libmspti.so:/t/libtaskd.so:$(X)");
        assert_eq!(join_reference(&OURS, "X", PreloadOrder::Last), "$(X):/m/libmspti.so:/t/libtaskd.so");
    }

    #[test]
    fn removes_from_a_changed_value() {
        let libraries = OURS.map(str::to_owned);
        assert_eq!(remove("/c.so:/t/libtaskd.so:/a.so", &libraries).as_deref(), Some("/c.so:/a.so"));
        assert_eq!(remove("/c.so", &libraries), None);
    }
}
