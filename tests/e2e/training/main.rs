//! Dying checkpoints of training jobs with Swansong's launcher hook: MindCluster's programs as fakes in Python, and the
//! launcher of the real torch.
#![allow(missing_docs, clippy::unwrap_used)]

mod machine;
mod python;

use machine::repository;

#[test]
fn each_loss_is_prevented_by_its_measure_and_happens_without_it() {
    // More at once would delay heartbeats so that living ranks count as lost.
    python::test(&repository().join("tests/support/fake-training"), "test_dump", 8, &[]);
}

#[test]
fn launcher_hook_works_in_the_launcher_of_the_real_torch() {
    python::test(&repository().join("tests/e2e/training"), "test_torchrun", 3, &[]);
}

#[test]
fn libraries_of_an_image_are_found_by_its_shell() {
    let script = swansong_inject::discovery::script();
    python::test(
        &repository().join("tests/e2e/training"),
        // Each searches the whole file system, and would find what the others install.
        "test_discovery",
        1,
        &[("FIND_LIBRARIES", script)],
    );
}

#[test]
fn manager_of_the_sidecar_ends_after_the_dump_and_shares_its_port() {
    python::test(&repository().join("tests/e2e/training"), "test_manager", 4, &[]);
}
