//! Joins the libraries with the user's `LD_PRELOAD`.

use swansong_api::preload::entries;

use crate::policy::PreloadOrder;

/// `ours` and the paths of `user` in one value; `None` if `user` has all of ours.
///
/// Paths are compared exactly: `/x/libtaskd.so.1` isn't `/x/libtaskd.so`.
pub fn join(ours: &[&str], user: &str, order: PreloadOrder) -> Option<String> {
    let has = |path: &str| entries(user).any(|token| token == path);
    if ours.iter().all(|path| has(path)) {
        return None;
    }
    let users_own = entries(user).filter(|token| !ours.contains(token));
    let joined: Vec<&str> = match order {
        PreloadOrder::First => ours.iter().copied().chain(users_own).collect(),
        PreloadOrder::Last => users_own.chain(ours.iter().copied()).collect(),
    };
    Some(joined.join(":"))
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
    fn joins() {
        for (user, first) in [
            ("", Some("/m/libmspti.so:/t/libtaskd.so")),
            (" : ", Some("/m/libmspti.so:/t/libtaskd.so")),
            (
                "/usr/local/lib/libjemalloc.so.2",
                Some("/m/libmspti.so:/t/libtaskd.so:/usr/local/lib/libjemalloc.so.2"),
            ),
            ("/a.so /b.so:/c.so", Some("/m/libmspti.so:/t/libtaskd.so:/a.so:/b.so:/c.so")),
            ("/t/libtaskd.so:/a.so", Some("/m/libmspti.so:/t/libtaskd.so:/a.so")),
            ("/t/libtaskd.so.1", Some("/m/libmspti.so:/t/libtaskd.so:/t/libtaskd.so.1")),
            ("$(LIBDIR)/a.so", Some("/m/libmspti.so:/t/libtaskd.so:$(LIBDIR)/a.so")),
            (
                "launcher.preload.so:/odigos/agent.so",
                Some("/m/libmspti.so:/t/libtaskd.so:launcher.preload.so:/odigos/agent.so"),
            ),
            ("/t/libtaskd.so:/m/libmspti.so", None),
            ("/a.so:/m/libmspti.so /t/libtaskd.so", None),
        ] {
            assert_eq!(join(&OURS, user, PreloadOrder::First).as_deref(), first, "{user:?}");
        }
    }

    #[test]
    fn the_two_orders_are_exact() {
        assert_eq!(
            join(&OURS, "/a.so", PreloadOrder::First).expect("merged"),
            "/m/libmspti.so:/t/libtaskd.so:/a.so"
        );
        assert_eq!(
            join(&OURS, "/a.so", PreloadOrder::Last).expect("merged"),
            "/a.so:/m/libmspti.so:/t/libtaskd.so"
        );
        assert_eq!(join_reference(&OURS, "X", PreloadOrder::First), "/m/libmspti.so:/t/libtaskd.so:$(X)");
        assert_eq!(join_reference(&OURS, "X", PreloadOrder::Last), "$(X):/m/libmspti.so:/t/libtaskd.so");
    }
}
