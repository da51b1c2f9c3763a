//! Like `planted`, with random names, owners, modes and access lists of files that users put into a tree's folder.
//!
//! `COB_SEED` and `COB_ROUNDS` repeat and lengthen the runs.

use std::os::unix::fs::chown;

use super::planted::{USER, access_list, attribute, is_root, nested, on_a_small_stack, plant, sparse};
use super::*;

struct Random(u64);

impl Random {
    /// The generator for an iteration of a run with this seed.
    fn of(seed: u64, round: u64) -> Self {
        Self((seed << 32 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % n
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("small")]
    }
}

/// Runs `what` in each iteration; a failure shows the seed and the iteration.
fn in_rounds(default: u64, what: impl Fn(Random, &str)) {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (seed, rounds) = (number("COB_SEED", 1), number("COB_ROUNDS", default));
    eprintln!("COB_SEED={seed} COB_ROUNDS={rounds}");
    for round in 0..rounds {
        what(Random::of(seed, round), &format!("seed {seed}, round {round}"));
    }
}

/// Puts a random entry into a folder of the tree or beside it, unless the name is taken; returns a description.
fn plant_something(bench: &Bench, random: &mut Random) -> String {
    let folder = *random.pick(&["w", "w/b", "w/stranger", "."]);
    let name =
        *random.pick(&["a", "b", "c", ".a.cob-new", ".b.cob-new", ".x.cob-new", ".stranger.cob-new", "stranger", "x"]);
    let what = *random.pick(&["file", "link", "folder", "full folder", "nested", "deeply nested", "sparse", "many"]);
    let path = bench.host(folder).join(name);
    if fs::create_dir_all(bench.host(folder)).is_err() || path.symlink_metadata().is_ok() {
        return format!("{folder}/{name} stays");
    }
    let write = |path: &Path| fs::write(path, "mine\n").expect("written");
    match what {
        "file" => write(&path),
        "link" => symlink("/etc/passwd", &path).expect("linked"),
        "sparse" => sparse(&path, 8 << 20),
        _ => fs::create_dir(&path).expect("made"),
    }
    match what {
        "full folder" => write(&path.join("in")),
        "nested" => nested(&path, 30),
        "deeply nested" => nested(&path, 400),
        "many" => (0..70).for_each(|n| write(&path.join(n.to_string()))),
        _ => {}
    }
    format!("{what} {folder}/{name}")
}

/// The entries below a folder with length and start of content; without paths that are too long.
fn below(folder: &Path) -> BTreeMap<PathBuf, (fs::FileType, u64, Vec<u8>)> {
    let (mut all, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_dir() {
                open.push(path.clone());
            }
            let length = if meta.is_file() { meta.len() } else { 0 };
            let text = if length < 100 { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            all.insert(path, (meta.file_type(), length, text));
        }
    }
    all
}

/// Whether an entry of another type is in the place of a file or folder of the model: a person has to decide.
fn is_in_the_way(bench: &Bench) -> bool {
    let is = |name: &str, right: fn(&fs::FileType) -> bool| {
        bench.host(name).symlink_metadata().is_ok_and(|meta| !right(&meta.file_type()))
    };
    ["w/a", "w/b/c", "x"].iter().any(|name| is(name, fs::FileType::is_file))
        || ["w", "w/b"].iter().any(|name| is(name, fs::FileType::is_dir))
}

/// Whether the entry looks like a staged file, and so does not come back. In a folder that is managed as a whole, a
/// folder does not.
fn counts_as_left_over(bench: &Bench, path: &Path, is_folder: bool) -> bool {
    let name = path.file_name().expect("a name").to_string_lossy();
    let could_be = !is_folder || !path.starts_with(bench.host("w"));
    could_be && name.starts_with('.') && name.ends_with(".cob-new")
}

#[test]
fn a_tree_applies_and_restores_any_files_of_users_in_its_folders() {
    in_rounds(12, |mut random, context| {
        let bench = Bench::new();
        let wanted = bench.wanted(
            r#"{"files": {"@/w": {"folder": true, "whole": true}, "@/w/a": {"content": "a\n"},
                "@/w/b/c": {"content": "c\n"}, "@/x": {"content": "x\n"}}}"#,
        );
        let (mut planted, mut before) = (Vec::new(), BTreeMap::new());
        for turn in ["first", "again"] {
            planted.extend((0..=random.below(6)).map(|_| plant_something(&bench, &mut random)));
            if is_in_the_way(&bench) {
                return;
            }
            if turn == "first" {
                before = below(&bench.host(""));
            }
            let context = format!("{context}, {turn}: {planted:?}");
            on_a_small_stack(|| {
                bench.apply(&wanted).unwrap_or_else(|error| panic!("{context}: {error}"));
                let checked = bench.files.check(COB, &wanted).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(checked.state, State::Present, "{context}: {}", checked.difference);
            });
            let there: Vec<_> = below(&bench.host("w")).into_keys().collect();
            assert_eq!(there, ["w/a", "w/b", "w/b/c"].map(|name| bench.host(name)), "{context}");
        }
        on_a_small_stack(|| {
            drop(bench.retire(&wanted).unwrap_or_else(|error| panic!("{context}: {planted:?}: {error}")))
        });
        let after = below(&bench.host(""));
        for (path, was) in before.iter().filter(|(path, (sort, ..))| !counts_as_left_over(&bench, path, sort.is_dir()))
        {
            assert_eq!(after.get(path), Some(was), "{context}: {planted:?}: {}", path.display());
        }
    });
}

#[test]
fn a_planted_file_always_gets_the_access_that_the_model_states() {
    if !is_root() {
        return;
    }
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    in_rounds(150, |mut random, context| {
        let bench = Bench::new();
        let mask = *random.pick(&[0o777, 0o7777]);
        let mode = random.chance().then(|| u32::try_from(random.below(0o10000)).expect("small") & mask);
        let [owner, group] = [0, 1].map(|_| random.chance().then(|| *random.pick(&[0, USER, 77])));
        let mut stated = serde_json::json!({"content": "x\n"});
        if let Some(mode) = mode {
            stated["mode"] = format!("{mode:04o}").into();
        }
        for (key, id) in [("owner", owner), ("group", group)] {
            if let Some(id) = id {
                stated[key] = id.into();
            }
        }
        let wanted = bench.wanted(&serde_json::json!({"files": {"@/f": stated}}).to_string());
        let states_access = mode.is_some() || owner.is_some() || group.is_some();
        for turn in ["first", "again"] {
            let path = bench.host("f");
            let content = *random.pick(&["x\n", "planted\n"]);
            let _ = fs::remove_file(&path);
            fs::write(&path, content).expect("written");
            let [uid, gid] = [0, 1].map(|_| *random.pick(&[0, USER, 99]));
            chown(&path, Some(uid), Some(gid)).expect("given");
            let has_list = random.chance() && plant(&path, "system.posix_acl_access", &access_list());
            let planted = u32::try_from(random.below(0o10000)).expect("small");
            fs::set_permissions(&path, fs::Permissions::from_mode(planted)).expect("set");
            let has_capability = random.chance() && plant(&path, "security.capability", &capability);
            let context = format!(
                "{context}, {turn}: the model states mode {mode:?}, owner {owner:?}, group {group:?}; planted is \
                 {content:?}, {planted:04o} of {uid}:{gid}, access list {has_list}, capability {has_capability}"
            );
            bench.apply(&wanted).unwrap_or_else(|error| panic!("{context}: {error}"));
            let meta = fs::metadata(&path).expect("there");
            let has = meta.mode() & 0o7777;
            // A file that is as the model says stays as it is if the model states no access.
            let is_left = content == "x\n" && !states_access;
            let as_another = if is_left { planted } else { mode.unwrap_or_default() } & 0o6000;
            assert_eq!(has & 0o6000, as_another, "{context}: it is {has:04o}");
            assert_eq!(has, mode.unwrap_or(has), "{context}");
            assert_eq!((meta.uid(), meta.gid()), (owner.unwrap_or(uid), group.unwrap_or(gid)), "{context}");
            for name in ["system.posix_acl_access", "security.capability"].into_iter().filter(|_| states_access) {
                assert_eq!(attribute(&path, name), None, "{context}: {name}");
            }
            let checked = bench.files.check(COB, &wanted).expect("looked");
            assert_eq!(checked.state, State::Present, "{context}: {}", checked.difference);
        }
    });
}
