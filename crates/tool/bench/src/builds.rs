//! How the programs that are measured were built: one without optimisation is several times slower and says nothing of any other.

use crate::driver::Driver;
use anyhow::{Result, bail};
use nacre_types::build_kind::BuildKind;
use serde_json::Value;
use std::collections::BTreeMap;

/// OSDs by how they say in `osd metadata` that they were built; those of Ceph do not say.
pub(crate) fn of_osds(metadata: &Value) -> BTreeMap<String, Vec<u64>> {
    let mut builds = BTreeMap::<String, Vec<u64>>::new();
    for osd in metadata.as_array().into_iter().flatten() {
        let build = osd[BuildKind::METADATA_KEY].as_str().unwrap_or("not told");
        builds.entry(build.to_owned()).or_default().extend(osd["id"].as_u64());
    }
    builds
}

/// Refuses to measure what was built for developers: OSDs that say so, and this program where it is the client.
///
/// # Errors
/// When there is one.
pub(crate) fn check(builds: &BTreeMap<String, Vec<u64>>, own: &BuildKind, client: Driver) -> Result<()> {
    let what_to_do = "measure what `make bin` builds (target/release/nacre), or try the bench itself with --allow-unoptimised";
    for (build, osds) in builds {
        if BuildKind::parse(build).is_some_and(|kind| !kind.is_optimised()) {
            let names: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
            bail!(
                "{} run an unoptimised build ({build}), whose figures say nothing: {what_to_do}",
                names.join(" ")
            );
        }
    }
    if client == Driver::Own && !own.is_optimised() {
        bail!("--client own is this program, which is an unoptimised build ({own}): {what_to_do}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unoptimised_builds_are_refused() {
        let [fast, slow] = ["opt-level 3", "opt-level 0, debug assertions"]
            .map(|text| BuildKind::parse(text).expect("a build"));
        let osds = |second: &str| {
            of_osds(
                &json!([{ "id": 0, "nacre_build": "opt-level 3" }, { "id": 1, "nacre_build": second }, { "id": 2 }]),
            )
        };
        assert!(check(&osds("opt-level 3"), &fast, Driver::Own).is_ok());
        let refused = check(&osds("opt-level 0, debug assertions"), &fast, Driver::Fio)
            .map_err(|error| error.to_string());
        assert!(refused.is_err_and(|why| {
            why.starts_with("osd.1 run an unoptimised build (opt-level 0, debug assertions)")
        }));
        assert!(check(&osds("opt-level 3"), &slow, Driver::Fio).is_ok(), "fio puts the load on");
        assert!(check(&osds("opt-level 3"), &slow, Driver::Own).is_err());
    }
}
