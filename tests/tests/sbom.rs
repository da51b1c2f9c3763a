//! The bill of materials is complete, well formed, and reproducible.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use cob_tests::sbom::cyclonedx;
use serde_json::{Value, json};

fn of_this_workspace() -> (Value, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = serde_json::from_slice(&output.stdout).expect("JSON");
    (metadata, std::fs::read_to_string(root.join("Cargo.lock")).expect("a lock file"))
}

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().expect("a list").iter().map(|c| c[key].as_str().expect(key)).collect()
}

#[test]
fn the_sbom_lists_only_shipped_packages() {
    let (metadata, lock) = of_this_workspace();
    let bill = cyclonedx(&metadata, &lock).expect("made");
    let names = texts(&bill["components"], "name");
    for there in ["cobd", "cobgen", "cobctl", "cob-trust", "rustls", "ring", "age", "zeromq", "serde", "sd-notify"] {
        assert!(names.contains(&there), "{there} is not in {names:?}");
    }
    for not in ["cob-tests", "proptest", "insta", "divan"] {
        assert!(!names.contains(&not), "{not} is not shipped");
    }
    assert_eq!(bill, cyclonedx(&metadata, &lock).expect("again"));
}

#[test]
fn it_is_cyclonedx_1_5() {
    let (metadata, lock) = of_this_workspace();
    let bill = cyclonedx(&metadata, &lock).expect("made");
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"], &bill["version"]),
        (&json!("CycloneDX"), &json!("1.5"), &json!(1))
    );
    let whole = bill["metadata"]["component"]["bom-ref"].as_str().expect("the whole");
    let references: BTreeSet<_> = texts(&bill["components"], "bom-ref").into_iter().chain([whole]).collect();
    let components = bill["components"].as_array().expect("a list");
    assert_eq!(references.len(), components.len() + 1, "each reference once");
    for component in components {
        let keys: BTreeSet<_> = component.as_object().expect("an object").keys().map(String::as_str).collect();
        let known = ["type", "bom-ref", "name", "version", "purl", "licenses", "hashes", "externalReferences"];
        assert!(keys.iter().all(|k| known.contains(k)), "{keys:?}");
        assert!(["application", "library"].contains(&component["type"].as_str().expect("a type")));
        let purl = component["purl"].as_str().expect("a package URL");
        assert!(purl.starts_with("pkg:cargo/") && !purl.contains([' ', '+']), "{purl}");
        let licence = component["licenses"][0]["expression"].as_str().expect("a licence");
        assert!(!licence.is_empty() && !licence.contains('/'), "{purl}: {licence}");
        let ours = component.get("hashes").is_none();
        assert_eq!(ours, component["name"].as_str().expect("a name").starts_with("cob"), "{purl}");
        if !ours {
            let hash = component["hashes"][0]["content"].as_str().expect("a hash");
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{purl}: {hash}");
            assert_eq!(component["hashes"][0]["alg"], "SHA-256");
        }
    }
    let dependencies = bill["dependencies"].as_array().expect("a list");
    assert_eq!(texts(&bill["dependencies"], "ref").into_iter().collect::<BTreeSet<_>>(), references);
    for dependency in dependencies {
        let on = dependency["dependsOn"].as_array().expect("a list");
        let unknown: Vec<_> = on.iter().filter(|r| !references.contains(r.as_str().expect("text"))).collect();
        assert!(unknown.is_empty(), "{dependency}: {unknown:?}");
        assert_eq!(on.iter().map(Value::to_string).collect::<BTreeSet<_>>().len(), on.len(), "{dependency}");
    }
}

#[test]
fn a_package_without_licence_or_checksum_is_named() {
    let (metadata, lock) = of_this_workspace();
    let mut without = metadata.clone();
    let packages = without["packages"].as_array_mut().expect("a list");
    packages.iter_mut().find(|p| p["name"] == "ring").expect("there")["license"] = Value::Null;
    let error = cyclonedx(&without, &lock).expect_err("no licence");
    assert!(error.starts_with("ring ") && error.contains("licence"), "{error}");
    let (before, after) = lock.split_once("name = \"ring\"").expect("there");
    let lock = format!("{before}name = \"ring\"{}", after.replacen("checksum = ", "sum = ", 1));
    let error = cyclonedx(&metadata, &lock).expect_err("no checksum");
    assert!(error.starts_with("ring ") && error.contains("checksum"), "{error}");
    cyclonedx(&json!({}), "").expect_err("nothing at all");
}
