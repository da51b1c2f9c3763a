//! The pages about models: the models in them are valid, and the reference matches the schema.
//!
//! `UPDATE=1 cargo test -p cobgen --test docs` writes the reference anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use cobgen::expand::expand;
use cobgen::model::{Model, schema};
use serde_json::Value;

const BEGIN: &str = "<!-- reference: made by the test `the_reference_is_that_of_the_schema` -->\n";
const END: &str = "<!-- end of the reference -->\n";

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

#[test]
fn the_models_of_the_page_are_right() {
    let text = std::fs::read_to_string(page("model.md")).expect("the page");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut whole = 0;
    for block in blocks {
        let expansion = expand(Model::of_text("model.md", block), &Default::default());
        let told = cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false);
        if block.starts_with("security:") {
            whole += 1;
            assert_eq!(told, "", "{block}");
        } else {
            // A part of a model must at least be YAML with known keys.
            assert!(!expansion.diagnostics.iter().any(|d| d.code == "yaml"), "{told}");
        }
    }
    assert_eq!(whole, 3);
}

/// The settings whose pages have a whole model.
const SETTINGS: [&str; 27] = [
    "acme-certificate",
    "alternative",
    "apt-source",
    "archive",
    "attributes",
    "augeas",
    "authorized-key",
    "bmc",
    "config-keys",
    "cron",
    "debconf",
    "filesystem",
    "git-checkout",
    "ha-cluster",
    "ha-set",
    "host-entry",
    "hostname",
    "luks",
    "lvm-volume",
    "network",
    "nfs-export",
    "node-packages",
    "partition",
    "python-env",
    "raid",
    "swap-file",
    "timezone",
];

#[test]
fn the_models_of_the_pages_about_settings_are_right() {
    let dir = tempfile::tempdir().expect("a folder");
    let key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEaA==\n-----END PGP PUBLIC KEY BLOCK-----\n";
    std::fs::write(dir.path().join("tools.asc"), key).expect("written");
    let model = dir.path().join("model.yaml");
    for name in SETTINGS {
        let text = std::fs::read_to_string(page(&format!("kinds/{name}.md"))).expect("the page");
        let block = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a model");
        let host = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:7001\"}}\n";
        std::fs::write(&model, format!("{host}{block}")).expect("written");
        let expansion = expand(Model::load(&model), &Default::default());
        assert_eq!(cobgen::diagnostic::render(&expansion.diagnostics, &expansion.sources, false), "", "{name}");
    }
}

#[test]
fn the_model_of_the_page_about_templates_is_laid_out_as_it_says() {
    let text = std::fs::read_to_string(page("templates.md")).expect("the page");
    let block = |begin: &str| text.split(begin).nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.yaml");
    std::fs::write(&model, block("```yaml\n")).expect("written");
    let run = |command: &str| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = ["cobgen", command, model.to_str().expect("UTF-8")].map(Into::into);
        let status = cobgen::cli::run(
            args.to_vec(),
            &mut cobgen::cli::Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false },
        );
        (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
    };
    let shown = block("$ cobgen solve model.yaml\n");
    assert_eq!(run("solve"), (0, shown.to_owned(), String::new()));
    let (status, _, err) = run("check");
    assert_eq!((status, err.as_str()), (0, ""));
}

#[test]
fn the_reference_is_that_of_the_schema() {
    let page = page("model-reference.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the reference");
    let (_, after) = rest.split_once(END).expect("the end of the reference");
    let right = format!("{before}{BEGIN}{}{END}{after}", reference());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(page, &right).expect("written");
    } else {
        assert!(text == right, "the page differs from the schema: UPDATE=1 cargo test -p cobgen --test docs");
    }
}

/// A table for each type of the schema, in the order in which a reader meets them.
fn reference() -> String {
    let schema = schema();
    let titles = [
        ("the model", None),
        ("hosts: NAME", Some("HostEntry")),
        ("operators: NAME", Some("OperatorEntry")),
        ("maintenance", Some("MaintenanceEntry")),
        ("schedule", Some("ScheduleEntry")),
        ("variables", Some("VariablesEntry")),
        ("secrets: NAME", Some("SecretEntry")),
        ("budgets: NAME", Some("BudgetEntry")),
        ("kinds: NAME", Some("KindEntry")),
        ("kinds: NAME: check", Some("CheckEntry")),
        ("kinds: NAME: transitions: an item", Some("TransitionEntry")),
        ("cobs: HOST/NAME, and services: NAME: cobs: NAME", Some("CobEntry")),
        ("… transitions: an item", Some("TransitionNeedsEntry")),
        ("… locks: an item", Some("LockNeedsEntry")),
        ("services: NAME", Some("ServiceEntry")),
        ("services: NAME: dependencies", Some("DependenciesEntry")),
        ("… install, and runtime", Some("StageDependenciesEntry")),
        ("services: NAME: actions", Some("ActionsEntry")),
        ("… an action", Some("ActionEntry")),
        ("clusters: NAME", Some("ClusterEntry")),
        ("providers: NAME", Some("ProviderEntry")),
        ("hardwaretypes: NAME", Some("HardwaretypeEntry")),
        ("imagetypes: NAME", Some("ImagetypeEntry")),
        ("templates: NAME", Some("TemplateEntry")),
        ("… preference, weighted", Some("WeightsEntry")),
        ("templates: NAME: compatibility", Some("CompatibilityEntry")),
        ("templates: NAME: defaults", Some("DefaultsEntry")),
        ("templates: NAME: constraints", Some("ConstraintsEntry")),
        ("… layout", Some("LayoutEntry")),
        ("… services: NAME", Some("ServiceConstraintEntry")),
        ("… quantities", Some("QuantitiesEntry")),
        ("… ratio", Some("RatioEntry")),
        ("… size", Some("SizeEntry")),
    ];
    let mut out = String::new();
    let mut later: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (title, name) in titles {
        let of = name.map_or(schema, |name| &schema["$defs"][name]);
        let needed: Vec<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let _ = write!(out, "\n**{title}**\n\n| key | form | |\n| --- | --- | --- |\n");
        for (key, property) in of["properties"].as_object().expect("properties") {
            if let Some(instead) = property["x-not-supported-yet"].as_str() {
                later.entry(instead.to_owned()).or_default().push(format!("`{key}` ({title})"));
                continue;
            }
            let star = if needed.contains(&key.as_str()) { "\\*" } else { "" };
            let text = property["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
            let _ = writeln!(out, "| `{key}`{star} | {} | {text} |", form(property, schema));
        }
    }
    if !later.is_empty() {
        out += "\n**Known from the design, refused in this version**, with what to do instead:\n\n";
    }
    for (instead, keys) in later {
        let _ = writeln!(out, "- {}: {instead}", keys.join(", "));
    }
    out.push('\n');
    out
}

/// A short description of a value's form.
fn form(of: &Value, schema: &Value) -> String {
    if of["pattern"].as_str().is_some_and(|p| p.contains("ms|s|m|h")) {
        return "duration".to_owned();
    }
    if let Some(name) = of["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        let words = schema["$defs"][name]["oneOf"].as_array().into_iter().flatten();
        let words: Vec<String> = words.filter_map(|w| Some(format!("`{}`", w["const"].as_str()?))).collect();
        return if words.is_empty() { "mapping".to_owned() } else { words.join(" or ") };
    }
    let choices = of["anyOf"].as_array().into_iter().flatten().filter(|c| c["type"] != "null");
    let mut forms: Vec<String> = Vec::new();
    for form in choices.filter(|c| c["x-not-supported-yet"].is_null()).map(|c| form(c, schema)) {
        let new = form.split(" or ").filter(|part| !forms.iter().any(|f| f == part)).map(str::to_owned);
        let new: Vec<String> = new.collect();
        forms.extend(new);
    }
    if !forms.is_empty() {
        return forms.join(" or ");
    }
    let listed = of["type"].as_array().into_iter().flatten();
    let types: Vec<&str> =
        std::iter::once(&of["type"]).chain(listed).filter_map(Value::as_str).filter(|t| *t != "null").collect();
    match types.as_slice() {
        ["string"] => "text",
        ["integer"] => "number",
        ["boolean"] => "`true` or `false`",
        ["array"] => "list",
        ["object"] => "mapping",
        _ => "any value",
    }
    .to_owned()
}
