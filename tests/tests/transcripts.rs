//! Every transcript in `tests/transcripts` has the recorded output.

use std::fs;
use std::path::PathBuf;

use cob_tests::transcript;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

#[test]
fn transcripts_come_out_as_written() {
    let update = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let only = std::env::var("TRANSCRIPT").unwrap_or_default();
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.to_string_lossy().contains(&only)).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(file).unwrap();
        match transcript::replay(&text) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(played) if played == text => {}
            Ok(played) if update => fs::write(file, played).unwrap(),
            Ok(played) => wrong.push(format!("{name}: {}", first_difference(&text, &played))),
        }
    }
    assert!(!files.is_empty(), "no transcript found");
    let wrong = wrong.join("\n\n");
    assert!(wrong.is_empty(), "{wrong}\n\nif this is what should be: UPDATE_TRANSCRIPTS=1 cargo test -p cob-tests");
}

/// The counterexamples to a simpler lock protocol, by number.
#[test]
fn every_counterexample_has_a_transcript() {
    let names: Vec<String> =
        fs::read_dir(folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    for number in 1..=14 {
        let start = format!("counterexample-{number:02}");
        assert!(names.iter().any(|n| n.starts_with(&start)), "{start} is missing");
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    let mut line = 0;
    loop {
        line += 1;
        match (expected.next(), found.next()) {
            (Some(e), Some(f)) if e == f => {}
            (None, None) => return "the last line differs".to_owned(),
            (e, f) => {
                let text = |l: Option<&str>| l.map_or("the end".to_owned(), str::to_owned);
                return format!("line {line}:\n  expected {}\n  found    {}", text(e), text(f));
            }
        }
    }
}
