//! Compares file trees with a model of their rules: random generations, random edits by users, kills at random moments.
//!
//! `COB_SEED` and `COB_ROUNDS` repeat and lengthen the runs; `COB_KILLS` sets the number of kills.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cob_files::{Choice, Content, Files, FilesError, Job, NoVault, Reason, State, TreePath, Wanted};

const COB: &str = "n1/files";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).expect("small")
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

fn open(folder: &Path) -> Files {
    Files::open(&folder.join("files"), Arc::new(NoVault)).expect("opened")
}

fn wanted(files: &BTreeMap<String, String>, manage: &str, folder: &Path) -> Wanted {
    let files: serde_json::Map<_, _> = files
        .iter()
        .map(|(name, text)| {
            let path = folder.join("host").join(name).display().to_string();
            (path, serde_json::json!({"content": text, "manage": manage}))
        })
        .collect();
    let json = serde_json::json!({ "files": files });
    let spec = json.to_string();
    let content: Content = serde_json::from_value(json).expect("a content");
    Wanted::new(content, folder, &spec).expect("makes sense")
}

/// The model's text: settings that generations change, with enough lines between them.
fn text(settings: &[usize; 8], windows: bool) -> String {
    let block = |(n, setting): (usize, &usize)| {
        let steady: String = (0..6).map(|line| format!("steady {n} {line}\n")).collect();
        format!("{steady}setting {n} = {setting}\n")
    };
    let text: String = settings.iter().enumerate().map(block).collect();
    if windows { text.replace('\n', "\r\n") } else { text }
}

/// A user's edit of a file: adds, changes or removes a line.
fn edit(path: &Path, mark: &mut usize, random: &mut Random) {
    let Ok(old) = fs::read_to_string(path) else { return };
    let mut lines: Vec<String> = old.split_inclusive('\n').map(str::to_owned).collect();
    let at = random.below(lines.len() + 1);
    *mark += 1;
    match random.below(4) {
        0 if at < lines.len() => lines[at] = format!("user {mark}\n"),
        1 if at < lines.len() => drop(lines.remove(at)),
        _ => {
            if at > 0 && !lines[at - 1].ends_with('\n') {
                lines[at - 1].push('\n');
            }
            lines.insert(at, format!("user {mark}\n"));
        }
    }
    fs::write(path, lines.concat()).expect("edited");
}

fn users(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::trim_end).filter(|line| line.starts_with("user ")).map(str::to_owned).collect()
}

fn host_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder.join("host")).into_iter().flatten().flatten();
    entries.map(|e| (e.path(), fs::read(e.path()).expect("a file"))).collect()
}

/// After each action all lines of users are there, or a conflict is reported and no file was written.
#[test]
fn a_user_s_line_is_never_lost_silently() {
    let (seed, rounds) = (number("COB_SEED", 1), number("COB_ROUNDS", 150));
    println!("COB_SEED={seed} COB_ROUNDS={rounds}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let names = ["a.conf", "b.conf", "c.conf"];
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("host")).expect("made");
    let mut files = open(folder.path());
    let (mut mark, mut merged, mut conflicts) = (0, 0, 0);
    let mut settings: BTreeMap<&str, [usize; 8]> = BTreeMap::new();
    let mut generations: Vec<BTreeMap<String, String>> = Vec::new();
    // The applied paths: at the first application, the present text is kept as the earlier text and not merged.
    let mut managed: BTreeSet<PathBuf> = BTreeSet::new();
    // Users' lines when the tree was put off: they come back with the tree.
    let mut set_aside: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for round in 0..rounds {
        // A new content, or an earlier content again.
        let tree = if random.chance(30) && !generations.is_empty() {
            generations[random.below(generations.len())].clone()
        } else {
            let some = names.iter().filter(|_| random.chance(85));
            let some: Vec<_> = some.collect();
            let some = if some.is_empty() { vec![&names[0]] } else { some };
            let mut tree = BTreeMap::new();
            for name in some {
                let settings = settings.entry(*name).or_default();
                settings[random.below(8)] = random.below(4);
                tree.insert((*name).to_owned(), text(settings, *name == "c.conf"));
            }
            tree
        };
        generations.push(tree.clone());
        let wanted = wanted(&tree, "merge", folder.path());
        let before = host_files(folder.path());
        let ours = before.keys().filter(|path| managed.contains(*path));
        let is_off = !set_aside.is_empty();
        let lines: BTreeMap<_, _> = match is_off {
            true => std::mem::take(&mut set_aside),
            false => ours.map(|path| (path.clone(), users(path))).collect(),
        };
        let job = Job { cob: COB, generation: round, wanted: &wanted, is_cancelled: &|| false };
        let retire = random.chance(8) && !is_off;
        let said = files.check(COB, &wanted).expect("looked").state;
        let moved = if retire { files.retire(&job) } else { files.apply(&job) };
        match moved {
            Ok(_) => {
                for (path, lines) in &lines {
                    assert!(lines.is_subset(&users(path)), "seed {seed} round {round}: {}", path.display());
                }
                merged += usize::from(lines.values().any(|l| !l.is_empty()));
                if !retire {
                    assert_eq!(files.check(COB, &wanted).expect("looked").state, State::Present, "round {round}");
                    for (name, text) in &tree {
                        let path = folder.path().join("host").join(name);
                        if lines.get(&path).is_none_or(BTreeSet::is_empty) && !before.contains_key(&path) {
                            assert_eq!(&fs::read_to_string(&path).expect("there"), text);
                        }
                    }
                } else {
                    assert_eq!(files.check(COB, &wanted).expect("looked").state, State::Absent);
                }
            }
            Err(FilesError::Conflict(told)) => {
                conflicts += 1;
                assert_eq!(host_files(folder.path()), before, "seed {seed} round {round}: nothing is written");
                assert!(retire || said == State::Conflict, "seed {seed} round {round}: {said:?}");
                assert!(!told.is_empty());
                let choice = if random.chance(50) { Choice::Ours } else { Choice::Theirs };
                let decided = files.resolve(COB, &wanted, retire, None, None, &choice).expect("decided");
                assert_eq!(decided, told.len());
                if retire { files.retire(&job) } else { files.apply(&job) }.expect("decided");
                for (path, lines) in lines.iter().filter(|_| choice == Choice::Ours) {
                    assert!(lines.is_subset(&users(path)), "seed {seed} round {round}: {}", path.display());
                }
            }
            Err(other) => panic!("seed {seed} round {round}: {other}"),
        }
        managed.clear();
        if !retire {
            managed.extend(tree.keys().map(|name| folder.path().join("host").join(name)));
            for name in tree.keys() {
                for _ in 0..random.below(2) {
                    edit(&folder.path().join("host").join(name), &mut mark, &mut random);
                }
            }
            if random.chance(20) {
                set_aside = managed.iter().map(|path| (path.clone(), users(path))).collect();
                files.put_off(&job).unwrap_or_else(|e| panic!("seed {seed} round {round}: {e}"));
            }
        }
        if random.chance(10) {
            files.settle().expect("written");
            files = open(folder.path());
        }
    }
    assert!(merged > 10 && conflicts > 3, "{merged} merges and {conflicts} conflicts are too few to say anything");
}

/// Overwritten texts of copied files can be restored.
#[test]
fn an_overwritten_text_is_in_the_history() {
    let (seed, rounds) = (number("COB_SEED", 1), number("COB_ROUNDS", 60));
    println!("COB_SEED={seed} COB_ROUNDS={rounds}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("host")).expect("made");
    let files = open(folder.path());
    let path = folder.path().join("host/x");
    let tree_path = TreePath::new(path.to_str().expect("text")).expect("a path");
    let mut overwritten: BTreeSet<Vec<u8>> = BTreeSet::new();
    for round in 0..rounds {
        let tree = BTreeMap::from([("x".to_owned(), format!("text {}\n", random.below(5)))]);
        let wanted = wanted(&tree, "copy", folder.path());
        if random.chance(50) {
            let mine = format!("mine {round}\n").into_bytes();
            fs::write(&path, &mine).expect("edited");
        }
        let here = fs::read(&path).ok();
        let job = Job { cob: COB, generation: round, wanted: &wanted, is_cancelled: &|| false };
        if random.chance(20) { files.retire(&job) } else { files.apply(&job) }.expect("moved");
        overwritten.extend(here.filter(|text| fs::read(&path).ok().as_ref() != Some(text)));
    }
    let log = files.log(COB, usize::MAX).expect("read");
    let kept: BTreeSet<Vec<u8>> = log.iter().filter_map(|v| files.content(COB, &v.id, &tree_path).ok()).collect();
    let missing: Vec<_> = overwritten.iter().filter(|text| !kept.contains(*text)).collect();
    // A file that was there when a tree was applied again is in the earlier entries.
    let in_before =
        |text: &[u8]| log.iter().any(|v| v.info.reason == Reason::Before && shown_before(&files, v, &tree_path, text));
    assert!(missing.iter().all(|text| in_before(text)), "{missing:?}");
    assert!(overwritten.len() > 10);
}

fn shown_before(files: &Files, version: &cob_files::Shown, path: &TreePath, text: &[u8]) -> bool {
    files.before(COB, &version.id, path).is_ok_and(|kept| kept == text)
}

/// The process that is killed: applies the trees in turn and retires them, forever.
#[test]
fn child() {
    let Some(folder) = std::env::var_os("COB_FILES_CHILD").map(PathBuf::from) else { return };
    let files = open(&folder);
    let trees: Vec<_> = trees(&folder);
    println!("begun");
    for turn in 0.. {
        let wanted = &trees[turn % trees.len()];
        let job = Job { cob: COB, generation: turn as u64, wanted, is_cancelled: &|| false };
        match turn % 10 {
            4 => files.retire(&job),
            6 | 9 => files.put_off(&job),
            _ => files.apply(&job),
        }
        .expect("moved");
    }
}

const COUNT: usize = 12;
/// The trees, and the files of each.
const TREES: [(&str, std::ops::Range<usize>); 3] = [("a", 0..COUNT), ("b", 0..COUNT - 3), ("c", 3..COUNT)];

fn trees(folder: &Path) -> Vec<Wanted> {
    let tree = |letter: &str, files: &std::ops::Range<usize>| {
        let files = files.clone().map(|n| (format!("f{n}"), whole(letter))).collect();
        wanted(&files, if letter == "c" { "copy" } else { "merge" }, folder)
    };
    TREES.iter().map(|(letter, files)| tree(letter, files)).collect()
}

/// The expected files for this tree, or without a tree.
fn all_with(tree: Option<usize>) -> BTreeMap<String, String> {
    let before = (0..COUNT / 2).map(|n| (format!("f{n}"), whole("before")));
    let ours = tree.into_iter().flat_map(|tree| {
        let (letter, files) = &TREES[tree];
        files.clone().map(|n| (format!("f{n}"), whole(letter)))
    });
    before.chain(ours).collect()
}

fn whole(letter: &str) -> String {
    format!("{letter}\n").repeat(3000)
}

#[test]
fn each_file_is_whole_after_a_kill_and_the_next_attempt_continues() {
    let (seed, kills) = (number("COB_SEED", 1), number("COB_KILLS", 15));
    println!("COB_SEED={seed} COB_KILLS={kills}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let base = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder");
    fs::create_dir(folder.path().join("host")).expect("made");
    for n in 0..COUNT / 2 {
        fs::write(folder.path().join(format!("host/f{n}")), whole("before")).expect("written");
    }
    let trees = trees(folder.path());
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child", "--nocapture"])
            .env("COB_FILES_CHILD", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("begun");
        let mut out = child.stdout.take().expect("piped");
        let mut said = Vec::new();
        while !said.ends_with(b"begun\n") {
            let mut byte = [0];
            let read = std::io::Read::read(&mut out, &mut byte).expect("read");
            assert!(read == 1, "the child has ended: {}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        std::thread::sleep(Duration::from_micros(random.below(150_000) as u64));
        child.kill().expect("killed");
        child.wait().expect("waited for");

        for (path, text) in host_files(folder.path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let known = ["a", "b", "c", "before"].iter().any(|letter| text == whole(letter).as_bytes());
            assert!(name.ends_with(".cob-new") || known, "kill {kill}: {name} is half written");
        }
        // The next process continues from any point, and the result is as without a kill.
        let files = open(folder.path());
        let tree = random.below(trees.len());
        let wanted = &trees[tree];
        let job = Job { cob: COB, generation: 1, wanted, is_cancelled: &|| false };
        let is_there = |tree: Option<usize>| {
            let named = |(path, text): (PathBuf, Vec<u8>)| {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                (name, String::from_utf8_lossy(&text).into_owned())
            };
            let (there, all) = (host_files(folder.path()).into_iter().map(named), all_with(tree));
            let there: BTreeMap<String, String> = there.collect();
            let letters = || there.iter().map(|(name, text)| format!("{name} {}", &text[..1])).collect::<Vec<_>>();
            let log = || files.log(COB, 6).expect("read").into_iter().map(|v| v.info).collect::<Vec<_>>();
            assert!(there == all, "kill {kill}: not as with {tree:?}: {:?} {:#?}", letters(), log());
        };
        // Also if the tree is not applied again before it is retired.
        if random.chance(70) {
            files.apply(&job).unwrap_or_else(|e| panic!("kill {kill}: {e}"));
            assert_eq!(files.check(COB, wanted).expect("looked").state, State::Present, "kill {kill}");
            is_there(Some(tree));
        }
        if random.chance(40) {
            files.retire(&job).unwrap_or_else(|e| panic!("kill {kill}: {e}"));
            is_there(None);
        }
    }
}
