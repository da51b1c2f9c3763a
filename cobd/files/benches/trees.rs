//! Figures of file trees without a daemon: many trees of a file, a tree of many files, many generations.
//!
//! `cargo bench -p cob-files` measures all but the largest; `-- small`, `-- large`, `-- generations` or `-- largest`
//! selects a measurement. `COB_TEST_DIR` sets the folder, and so the disk.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Instant;

use cob_files::{Content, Files, Job, NoVault, State, Wanted};

/// The number of threads of the daemon.
const THREADS: usize = 256;

struct Bench {
    folder: tempfile::TempDir,
    files: Files,
}

impl Bench {
    fn new() -> Self {
        let base = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = tempfile::tempdir_in(base).expect("a folder");
        fs::create_dir(folder.path().join("host")).expect("made");
        let files = Files::open(&folder.path().join("files"), Arc::new(NoVault)).expect("opened");
        Self { folder, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("host").join(name)
    }

    fn wanted(&self, manage: &str, texts: impl Iterator<Item = (String, String)>) -> Wanted {
        let path = |name: &str| self.path(name).to_str().expect("text").to_owned();
        let files: serde_json::Map<_, _> =
            texts.map(|(name, text)| (path(&name), serde_json::json!({"content": text}))).collect();
        let json = serde_json::json!({"manage": manage, "files": files});
        let spec = cob_types::canonical::fingerprint(&[json.to_string().as_bytes()]).to_string();
        let content: Content = serde_json::from_value(json).expect("a content");
        Wanted::new(content, self.folder.path(), &spec).expect("makes sense")
    }

    fn apply(&self, cob: &str, generation: u64, wanted: &Wanted) -> usize {
        let job = Job { cob, generation, wanted, is_cancelled: &|| false };
        self.files.apply(&job).expect("applied").changed
    }

    fn retire(&self, cob: &str, wanted: &Wanted) -> usize {
        let job = Job { cob, generation: 0, wanted, is_cancelled: &|| false };
        self.files.retire(&job).expect("retired").changed
    }

    fn is(&self, cob: &str, wanted: &Wanted, state: State) {
        assert_eq!(self.files.check(cob, wanted).expect("looked").state, state);
    }

    fn store_bytes(&self) -> u64 {
        size(&self.folder.path().join("files"))
    }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("listed").flatten();
    entries.map(|e| if e.path().is_dir() { size(&e.path()) } else { e.metadata().map_or(0, |m| m.len()) }).sum()
}

/// Runs a function and prints its duration.
fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = run();
    println!("{what}: {:.3} s; peak {} MiB", begin.elapsed().as_secs_f64(), peak());
    done
}

/// The peak memory of this process, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// Resets the peak.
fn forget_peak() {
    // If it can't be reset, the figure is of the whole run.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Runs a function for each item, in as many threads as the daemon has.
fn for_each<T: Sync>(all: &[T], run: impl Fn(&T) + Sync) {
    let next = Mutex::new(all.iter());
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(all.len()) {
            scope.spawn(|| {
                loop {
                    let Some(one) = next.lock().expect("no panic").next() else { break };
                    run(one);
                }
            });
        }
    });
}

/// Many trees with a single file each, applied as by an activation.
fn small(count: usize) {
    let bench = Bench::new();
    let tree = |n: usize| {
        let text = (format!("d{}/f{n}", n % 10), format!("file {n}\n"));
        (format!("n1/f{n}"), bench.wanted("copy", std::iter::once(text)))
    };
    let trees: Vec<_> = (0..count).map(tree).collect();
    forget_peak();
    timed(&format!("{count} trees of one file, looked at and brought about"), || {
        for_each(&trees, |(cob, wanted)| {
            bench.is(cob, wanted, State::Absent);
            assert!(bench.apply(cob, 1, wanted) > 0);
        });
    });
    timed("  looked at again", || for_each(&trees, |(cob, wanted)| bench.is(cob, wanted, State::Present)));
    timed("  put into the repository", || bench.files.settle().expect("written"));
    timed("  taken back", || for_each(&trees, |(cob, wanted)| assert!(bench.retire(cob, wanted) > 0)));
    timed("  put into the repository", || bench.files.settle().expect("written"));
    println!("  the store has {} KiB", bench.store_bytes() >> 10);
}

/// A tree of many files.
fn large(count: usize) {
    const COB: &str = "n1/tree";
    let bench = Bench::new();
    let name = |n: usize| format!("d{}/f{n}", n / 100);
    let lines = |n: usize, port: usize| format!("file {n}\na\nb\nport {port}\nc\nd\n");
    let tree = |manage: &str, port: usize, changed: usize| {
        bench.wanted(manage, (0..count).map(|n| (name(n), lines(n, if n < changed { port } else { 1 }))))
    };
    let first = tree("merge", 1, 0);
    forget_peak();
    timed(&format!("one tree of {count} files, brought about"), || bench.apply(COB, 1, &first));
    timed("  looked at, and nothing to do", || bench.is(COB, &first, State::Present));
    let one = tree("merge", 2, 1);
    let changed = timed("  one file changed by the model", || bench.apply(COB, 2, &one));
    assert_eq!(changed, 1);
    assert_eq!(timed("  and back", || bench.apply(COB, 3, &first)), 1);
    let edited = 100.min(count);
    for n in 0..edited {
        fs::write(bench.path(&name(n)), format!("{}mine {n}\n", lines(n, 1))).expect("edited");
    }
    let all = tree("merge", 3, count);
    let told = format!("  every file changed by the model, {edited} of them merged with what a user has changed");
    assert_eq!(timed(&told, || bench.apply(COB, 4, &all)), count);
    let mine = fs::read_to_string(bench.path(&name(7))).expect("there");
    assert_eq!(mine, format!("{}mine 7\n", lines(7, 3)));
    let back = timed("  every file back, users' lines kept", || bench.apply(COB, 5, &first));
    assert_eq!(back, count);
    for n in 0..edited {
        fs::write(bench.path(&name(n)), lines(n, 1)).expect("edited");
    }
    timed("  taken back", || bench.retire(COB, &first));
    println!("  the store has {} KiB", bench.store_bytes() >> 10);
}

/// A tree of a hundred files, in which every generation changes a file: how the repository grows.
fn generations(count: u64) {
    const COB: &str = "n1/tree";
    let bench = Bench::new();
    let tree = |generation: u64| {
        let text = |n: u64| {
            let steady: String = (0..40).map(|line| format!("{n} steady {line}\n")).collect();
            let last = if generation < n { 0 } else { (generation - n) / 100 * 100 + n };
            (format!("f{n}"), format!("{steady}changed in {last}\n"))
        };
        bench.wanted("copy", (0..100).map(text))
    };
    timed(&format!("{count} generations of a tree of 100 files, one changed in each"), || {
        for generation in 1..=count {
            bench.apply(COB, generation, &tree(generation));
            if [count / 100, count / 10, count / 2].contains(&generation) {
                bench.files.settle().expect("written");
                println!("  after {generation}: the store has {} KiB", bench.store_bytes() >> 10);
            }
        }
    });
    bench.files.settle().expect("written");
    println!("  after {count}: the store has {} KiB", bench.store_bytes() >> 10);
    assert_eq!(bench.files.log(COB, usize::MAX).expect("read").len() as u64, 2 * count);
    timed("  back to the first", || bench.apply(COB, count + 1, &tree(1)));
    timed("  older versions pruned", || bench.files.prune(u64::MAX).expect("pruned"));
    println!("  the store has {} KiB", bench.store_bytes() >> 10);
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let measures: [(&str, fn()); 4] = [
        ("small", || [1000, 10_000].into_iter().for_each(small)),
        ("large", || large(10_000)),
        ("generations", || generations(1000)),
        ("largest", || large(100_000)),
    ];
    for (name, measure) in measures {
        if wanted.is_empty() && name != "largest" || wanted.iter().any(|w| w == name) {
            measure();
        }
    }
}
