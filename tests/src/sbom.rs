//! The bill of materials of the shipped programs, as CycloneDX 1.5 in JSON: every crate built into `cobd`, `cobgen` and
//! `cobctl`, with version, licence, checksum and dependencies.
//!
//! Made only from `cargo metadata` and `Cargo.lock`, without a time and without random numbers, so that the same
//! sources give the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The shipped programs.
const SHIPPED: [&str; 3] = ["cobctl", "cobd", "cobgen"];

/// Makes it from the output of `cargo metadata --format-version 1` and the lock file.
///
/// # Errors
/// The data missing in either, as text.
pub fn cyclonedx(metadata: &Value, lock: &str) -> Result<Value, String> {
    let packages = by_id(metadata)?;
    let needs = needs(metadata)?;
    let reached = reached(&packages, &needs);
    let checksums = checksums(lock);
    let mut components = BTreeMap::new();
    let mut dependencies = BTreeMap::new();
    for id in &reached {
        let package = packages.get(id).ok_or_else(|| format!("{id} is needed and not described"))?;
        let reference = reference(package);
        components.insert(reference.clone(), component(package, &checksums)?);
        let on: BTreeSet<String> = needs.get(id).into_iter().flatten().map(|n| named(&packages, n)).collect();
        dependencies.insert(reference, on);
    }
    let version = packages.values().find(|p| text(p, "name") == "cobd").map_or("", |p| text(p, "version"));
    let whole = format!("pkg:generic/cob@{version}");
    let shipped: Vec<_> = SHIPPED.iter().map(|name| format!("pkg:cargo/{name}@{version}")).collect();
    let dependencies = dependencies.into_iter().map(|(of, on)| json!({"ref": of, "dependsOn": on}));
    let of_whole = json!({"ref": whole, "dependsOn": shipped});
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": whole, "name": "cob", "version": version, "purl": whole}},
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": std::iter::once(of_whole).chain(dependencies).collect::<Vec<_>>(),
    }))
}

fn by_id(metadata: &Value) -> Result<BTreeMap<&str, &Value>, String> {
    let packages = metadata["packages"].as_array().ok_or("no packages in what cargo says")?;
    Ok(packages.iter().map(|p| (text(p, "id"), p)).collect())
}

/// The dependencies of each crate, without dependencies of tests only.
fn needs(metadata: &Value) -> Result<BTreeMap<&str, Vec<&str>>, String> {
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or("no graph in what cargo says")?;
    let built_in = |dep: &&Value| dep["dep_kinds"].as_array().is_some_and(|k| k.iter().any(|k| k["kind"] != "dev"));
    let mut all = BTreeMap::new();
    for node in nodes {
        let list = node["deps"].as_array().into_iter().flatten().filter(built_in).map(|d| text(d, "pkg"));
        all.insert(text(node, "id"), list.collect());
    }
    Ok(all)
}

/// The shipped crates, and all their dependencies.
fn reached<'a>(packages: &BTreeMap<&'a str, &Value>, needs: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let ours = |p: &Value| p["source"].is_null() && SHIPPED.contains(&text(p, "name"));
    let mut open: Vec<&str> = packages.iter().filter(|(_, p)| ours(p)).map(|(id, _)| *id).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(needs.get(id).into_iter().flatten());
        }
    }
    found
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let mut all = Map::new();
    let reference = reference(package);
    all.insert("type".into(), json!(if SHIPPED.contains(&name) { "application" } else { "library" }));
    all.insert("bom-ref".into(), json!(reference));
    all.insert("name".into(), json!(name));
    all.insert("version".into(), json!(version));
    all.insert("purl".into(), json!(reference));
    let licence = text(package, "license");
    if licence.is_empty() {
        return Err(format!("{name} {version} names no licence"));
    }
    // Old manifests separate licences with `/`.
    all.insert("licenses".into(), json!([{"expression": licence.replace('/', " OR ")}]));
    if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        all.insert("hashes".into(), json!([{"alg": "SHA-256", "content": checksum}]));
    } else if !package["source"].is_null() {
        return Err(format!("{name} {version} comes from elsewhere and has no checksum in the lock file"));
    }
    if let Some(repository) = package["repository"].as_str() {
        all.insert("externalReferences".into(), json!([{"type": "vcs", "url": repository}]));
    }
    Ok(Value::Object(all))
}

/// Checksums by package name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|l| l.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks.filter_map(|b| Some(((value(b, "name")?, value(b, "version")?), value(b, "checksum")?))).collect()
}

fn named(packages: &BTreeMap<&str, &Value>, id: &str) -> String {
    packages.get(id).map_or_else(|| id.to_owned(), |package| reference(package))
}

fn reference(package: &Value) -> String {
    // A `+` in a version would be read as a space.
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version").replace('+', "%2B"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
