//! Transcripts as text files: a small system, the events, and their results.
//!
//! A file is a list of blocks, with comments (`#`) between them. A block is a command, perhaps with its own indented
//! lines, then `----`, then the expected output of the command, up to an empty line. `UPDATE_TRANSCRIPTS=1` replaces it
//! by the real output; commands that begin with `expect` state requirements and can't be overwritten.
//!
//! [`notation`] is the notation of systems, [`play`] has the commands.

pub mod notation;
pub mod play;

use std::fmt::Write as _;

use play::Play;

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// A comment or an empty line.
    Plain(String),
    /// A command with its expected output.
    Block { line: usize, command: String, body: Vec<String>, printed: Vec<String> },
}

/// Plays a file and returns it with the real output of its commands.
///
/// # Errors
/// An unknown command, an expectation that is not met, or a violation; with the line.
pub fn replay(text: &str) -> Result<String, String> {
    let mut play = Play::default();
    let mut result = String::new();
    for piece in parse(text)? {
        match piece {
            Piece::Plain(line) => _ = writeln!(result, "{line}"),
            Piece::Block { line, command, body, .. } => {
                let printed = play.command(&command, &body).map_err(|e| format!("line {line}: {command}: {e}"))?;
                let _ = writeln!(result, "{command}");
                body.iter().for_each(|l| _ = writeln!(result, "{l}"));
                let _ = writeln!(result, "----");
                let _ = writeln!(result, "{printed}");
            }
        }
    }
    while result.ends_with("\n\n") {
        result.pop();
    }
    Ok(result)
}

fn parse(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if line.starts_with('#') || line.is_empty() {
            pieces.push(Piece::Plain(line.to_owned()));
            continue;
        }
        let mut body = Vec::new();
        loop {
            match lines.next() {
                Some((_, "----")) => break,
                Some((_, own)) if own.starts_with(' ') => body.push(own.to_owned()),
                Some((other, _)) => return Err(format!("line {}: the command before it has no ----", other + 1)),
                None => return Err(format!("line {}: the command has no ----", at + 1)),
            }
        }
        let mut printed = Vec::new();
        while let Some((_, out)) = lines.next_if(|(_, l)| !l.is_empty()) {
            printed.push(out.to_owned());
        }
        // The empty line after a block is written with the block.
        lines.next_if(|(_, l)| l.is_empty());
        pieces.push(Piece::Block { line: at + 1, command: line.to_owned(), body, printed });
    }
    Ok(pieces)
}
