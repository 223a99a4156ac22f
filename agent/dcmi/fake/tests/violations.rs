//! The fake library rejects and records calls that the vendor's documents forbid.

use std::fs;
use std::process::Command;

use swansong_fake_dcmi::{Script, build, build_without, codes_after_flood};

/// A program with invalid calls.
const CALLER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
struct filter { unsigned long long flag; unsigned int id; unsigned char severity, type, resv[32]; };
static void handler(void *event) { (void)event; }
static void *library;
#define CALL(name, types, ...) printf("%d\n", ((int (*) types)dlsym(library, #name))(__VA_ARGS__))
int main(int argc, char **argv)
{
    int count, list[256], card;
    unsigned int health, codes[256];
    struct filter all = {0}, some = {.severity = 2};
    (void)argc;
    library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
    CALL(dcmi_get_card_list, (int *, int *, int), &count, list, 64);
    CALL(dcmi_init, (void));
    CALL(dcmi_get_card_list, (int *, int *, int), &count, list, 65);
    CALL(dcmi_get_card_list, (int *, int *, int), 0, list, 64);
    CALL(dcmi_get_card_list, (int *, int *, int), &count, list, 64);
    CALL(dcmi_get_device_health, (int, int, unsigned int *), 0, 0, 0);
    CALL(dcmi_get_device_health, (int, int, unsigned int *), 8, 0, &health);
    CALL(dcmi_get_device_errorcode_v2, (int, int, int *, unsigned int *, unsigned int), 0, 0, &card, codes, 256);
    CALL(dcmi_subscribe_fault_event, (int, int, struct filter, void *), 0, 0, all, (void *)handler);
    CALL(dcmi_subscribe_fault_event, (int, int, struct filter, void *), -1, -1, some, (void *)handler);
    CALL(dcmi_subscribe_fault_event, (int, int, struct filter, void *), -1, -1, all, 0);
    CALL(dcmi_subscribe_fault_event, (int, int, struct filter, void *), -1, -1, all, (void *)handler);
    CALL(dcmi_subscribe_fault_event, (int, int, struct filter, void *), -1, -1, all, (void *)handler);
    return 0;
}
"#;

#[test]
fn rejects_invalid_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = build(folder.path());
    let script = Script::beside(&library);
    let (source, caller) = (folder.path().join("caller.c"), folder.path().join("caller"));
    fs::write(&source, CALLER).expect("written");
    let built = Command::new("cc").arg("-o").args([&caller, &source]).arg("-ldl").status().expect("cc runs");
    assert!(built.success());
    let output = Command::new(&caller).arg(&library).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let results: Vec<i32> = String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(results, [-8005, 0, -8001, -8001, 0, -8001, -8007, -8001, -8001, -8001, -8001, 0, -8020]);
    let violations = script.violations();
    assert_eq!(violations.lines().count(), 9, "{violations}");
    assert!(
        violations.contains("card-list before init") && violations.contains("subscribed twice"),
        "{violations}"
    );
}

#[test]
fn can_omit_functions() {
    let symbols = |without: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let library = fs::read(build_without(folder.path(), without)).expect("read");
        let has = |name: &[u8]| library.windows(name.len()).any(|bytes| bytes == name);
        (has(b"\0dcmi_init\0"), has(b"\0dcmi_get_device_health\0"), has(b"\0dcmiv2_init\0"))
    };
    assert_eq!(symbols(&[]), (true, true, true));
    assert_eq!(symbols(&["dcmi_get_device_health", "V2"]), (true, false, false));
    assert_eq!(symbols(&["V1"]), (false, false, true));
}

#[test]
fn sends_a_flood_of_events() {
    assert_eq!(codes_after_flood(3, 2, 0x10).into_iter().collect::<Vec<_>>(), [(1, 0x10)]);
    assert_eq!(codes_after_flood(5, 2, 0x10).into_iter().collect::<Vec<_>>(), [(0, 0x11)]);
    assert!(codes_after_flood(10_000, 8, 0x10).is_empty());
    assert_eq!(codes_after_flood(10_004, 8, 0x10).len(), 4);
}
