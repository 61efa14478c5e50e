//! Control groups: whatever `mountinfo` and `cgroup` say, the group of a thread is below the mount, or none.
//!
//! The input is the text of `mountinfo`, an empty line, and the text of `cgroup`.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use plimsoll_herald::cgroup::{Hierarchy, Version};
use plimsoll_herald::parse::{memberships, mounts};

fuzz_target!(|text: &str| {
    let (mountinfo, cgroup) = text.split_once("\n\n").unwrap_or((text, text));
    assert!(mounts(mountinfo).count() <= mountinfo.lines().count());
    for group in memberships(cgroup) {
        assert!(cgroup.contains(group.path) && !group.path.contains('\n'));
        assert!(!(group.is_unified() && group.has("cpu")));
    }
    // Only a mount that is there tells whether version 2 has the controller.
    if let Some(hierarchy) = Hierarchy::find(mountinfo) {
        is_below(&hierarchy, cgroup);
    }
    for mount in mounts(mountinfo) {
        for version in [Version::V1, Version::V2] {
            is_below(&Hierarchy { version, mount: mount.at.clone(), root: mount.root.clone() }, cgroup);
        }
    }
});

fn is_below(hierarchy: &Hierarchy, cgroup: &str) {
    let Some(path) = hierarchy.path(cgroup) else { return };
    let inner = hierarchy.inner(path);
    assert!(!inner.ends_with('/'), "{inner:?}");
    let file = hierarchy.mount.join(inner.trim_start_matches('/'));
    assert!(file.starts_with(&hierarchy.mount), "{file:?} is not below {:?}", hierarchy.mount);
    assert!(Path::new(inner).components().all(|part| part != Component::ParentDir), "{inner:?}");
}
