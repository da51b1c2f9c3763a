//! The printed facts are a section of a model.

use cob_types::facts::Disk;

use super::*;

#[test]
fn the_printed_facts_are_a_section_of_a_model() {
    let disk = Disk { bytes: 1 << 30, rotational: false, model: "A \"b\": {c} #d\u{7}".to_owned() };
    let facts = HostFacts {
        cpus: 4,
        disks: [("sda".to_owned(), disk.clone()), ("no".to_owned(), Disk::default())].into(),
        addresses: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
        ..HostFacts::default()
    };
    let section = Section { facts: [(HostName::new("n1").expect("a name"), facts.clone())].into() };
    let text = lines(&serde_json::to_value(&section).expect("plain data")).join("\n");
    assert!(text.starts_with("facts:\n  n1:\n    addresses: [\"10.0.0.1\",\"fd00::1\"]\n"), "{text}");
    assert!(text.contains("\n      \"no\":\n        bytes: 0\n"), "{text}");
    // It reads back as the reported facts.
    let model = cobgen::model::Model::of_text("facts.yaml", &text);
    assert_eq!(model.diagnostics.errors(), 0);
    let read =
        model.sections.expect("read").facts.0.into_iter().map(|(name, node)| (name.value.clone(), node.to_json()));
    let read: Vec<(String, Value)> = read.collect();
    assert_eq!(read, [("n1".to_owned(), serde_json::to_value(&facts).expect("plain data"))]);
}
