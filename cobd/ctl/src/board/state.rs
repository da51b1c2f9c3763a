//! The board: the shown views, and the effect of each event.

use std::collections::BTreeMap;

use cob_types::CobId;
use cob_types::status::{ClusterStatus, CobStatus, HostStatus};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::keys::{Action, action};
use super::objects::{Columns, Listed, list};
use super::question::{Asked, Question, Told};
use super::text::{Item, Opens};
use super::{cluster, object, switch};
use crate::page::message::{Class, Cluster};
use crate::page::picture::{Picture, View};
use crate::page::worker::Answer;
use crate::words::reasons;

/// The columns for the cursor.
pub(crate) const CURSOR: u16 = 2;
/// The lines above and below the lines of a view: the views, the verdict, the keys.
pub(crate) const FRAME: u16 = 3;
/// The longest filter.
const FILTER: usize = 100;

/// An event of the board.
#[derive(Debug)]
pub(crate) enum Event {
    /// The cluster may have changed.
    News(Box<News>),
    /// Time has passed: the time of this machine, in milliseconds since 1970.
    Tick(u64),
    /// A key.
    Key(KeyEvent),
    /// The size of the terminal.
    Size(u16, u16),
    /// The answer to a question. Absent: the question was not asked.
    Answer(Question, Option<Answer>),
}

/// The present cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct News {
    /// The status of all watched hosts.
    pub status: ClusterStatus,
    /// The status of the shown hosts and change objects.
    pub shown: ClusterStatus,
    /// The verdict on the shown hosts and change objects.
    pub cluster: Cluster,
    /// Further lines of `cobctl status`.
    pub notes: Vec<String>,
    /// The progress of the plan of `--plan`.
    pub forecast: Option<String>,
    /// The time of this machine, in milliseconds since 1970.
    pub now_ms: u64,
}

/// An order to the program after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Ask this question.
    Ask(Question),
    /// Draw the whole screen again.
    Redraw,
    /// Stop until the shell continues the program.
    Suspend,
    /// End.
    Quit,
}

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The cluster and its hosts.
    Cluster,
    /// The list of change objects.
    Objects,
    /// The switch.
    Switch,
}

impl Place {
    /// The views, in the order of their keys.
    pub(crate) const ALL: [Place; 3] = [Place::Cluster, Place::Objects, Place::Switch];
}

/// The selected line of a view, and the first shown line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The selected line.
    pub at: usize,
    /// The first shown line.
    pub first: usize,
}

/// The board.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// The picture of the shown change objects and hosts.
    pub picture: Picture,
    /// The status of all watched hosts.
    pub status: ClusterStatus,
    /// Further lines of `cobctl status`.
    pub notes: Vec<String>,
    /// The progress of the plan of `--plan`.
    pub forecast: Option<String>,
    /// The time of this machine, in milliseconds since 1970.
    pub now_ms: u64,
    /// The questions that were asked.
    pub asked: BTreeMap<Question, Asked>,
    /// The services that the present or last switch interrupts, and for how many microseconds.
    pub interrupted: BTreeMap<CobId, Option<u64>>,
    /// The size of the terminal.
    pub size: (u16, u16),
    /// The shown view, as its place in [`Place::ALL`].
    pub at: usize,
    /// The opened change objects over it.
    pub opened: Vec<(CobId, Cursor)>,
    /// The filter of the list.
    pub filter: String,
    /// The operator types the filter.
    pub is_typing: bool,
    /// The keys are shown.
    pub has_help: bool,
    /// The listed change objects.
    pub list: Vec<Listed>,
    cursors: [Cursor; 3],
    /// The change object of the list's selected line.
    selected: Option<CobId>,
    /// The switch of the interruptions.
    goal: Option<cob_types::GenerationNumber>,
    /// How often the picture has changed.
    changes: u64,
}

/// The lines of a view. Lines of a long list are made when they are shown.
pub(crate) struct Content<'a> {
    /// A line above, which stays.
    pub heading: Option<ratatui::text::Line<'static>>,
    /// How many lines there are.
    pub len: usize,
    make: Box<dyn Fn(usize) -> Item + 'a>,
}

impl Content<'_> {
    fn of(items: Vec<Item>) -> Self {
        Self { heading: None, len: items.len(), make: Box::new(move |at| items[at].clone()) }
    }

    /// A line; an empty line after the end.
    pub(crate) fn item(&self, at: usize) -> Item {
        if at < self.len { (self.make)(at) } else { Item::default() }
    }
}

impl Board {
    /// Takes an event; returns orders to the program.
    pub(crate) fn take(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::News(news) => self.take_news(*news),
            Event::Tick(now_ms) => self.now_ms = self.now_ms.max(now_ms),
            Event::Size(wide, high) => self.size = (wide, high),
            Event::Key(key) => effects.extend(self.take_key(&key)),
            Event::Answer(question, answer) => {
                if let Some(asked) = self.asked.get_mut(&question) {
                    asked.is_pending = false;
                    let at_ms = asked.at_ms;
                    let told = answer.map(|answer| (at_ms, Told::of(&question, &answer)));
                    asked.answer = told.or(asked.answer.take());
                }
            }
        }
        self.find_interruptions();
        self.keep_cursor();
        effects.extend(self.questions().into_iter().map(Effect::Ask));
        effects
    }

    fn take_news(&mut self, news: News) {
        self.now_ms = self.now_ms.max(news.now_ms);
        let view = View { status: &news.shown, cluster: news.cluster, now_ms: news.now_ms };
        self.status = news.status;
        self.notes = news.notes;
        self.forecast = news.forecast;
        if self.picture.take(view, Vec::new(), false).is_some() {
            self.changes += 1;
            self.list_again();
        }
    }

    /// Lists the change objects again; the cursor stays on its change object.
    fn list_again(&mut self) {
        self.list = list(&self.picture, &self.filter);
        let cursor = &mut self.cursors[Place::Objects as usize];
        if let Some(at) = self.selected.as_ref().and_then(|id| self.list.iter().position(|one| one.id == *id)) {
            cursor.at = at;
        }
    }

    fn take_key(&mut self, key: &KeyEvent) -> Option<Effect> {
        if self.is_typing && self.take_letter(key) {
            return None;
        }
        let action = action(key);
        if self.has_help && key.kind != KeyEventKind::Release {
            let stays = matches!(action, Some(Action::Quit | Action::Suspend | Action::Redraw));
            self.has_help = stays;
            return if stays { self.carry_out(action?) } else { None };
        }
        self.carry_out(action?)
    }

    fn carry_out(&mut self, action: Action) -> Option<Effect> {
        let page = isize::try_from(self.room()).unwrap_or(1).max(2);
        match action {
            Action::By(lines) => self.step(lines),
            Action::HalfPages(halves) => self.step(halves * page / 2),
            Action::First => self.step(isize::MIN),
            Action::Last => self.step(isize::MAX),
            Action::Open => self.open(),
            Action::Back => self.back(),
            Action::View(at) => self.show(at),
            Action::Turn(by) => {
                let views = isize::try_from(Place::ALL.len()).unwrap_or(1);
                let at = isize::try_from(self.at).unwrap_or(0) + by;
                self.show(usize::try_from(at.rem_euclid(views)).unwrap_or(0));
            }
            Action::Filter => {
                self.show(Place::Objects as usize);
                self.is_typing = true;
            }
            Action::Cause => self.open_cause(),
            Action::Help => self.has_help = true,
            Action::Redraw => return Some(Effect::Redraw),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Quit => return Some(Effect::Quit),
        }
        None
    }

    /// Takes a key of the filter; returns whether the key was one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys move the cursor")]
    fn take_letter(&mut self, key: &KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match key.code {
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.filter.clear(),
            KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char(c) if self.filter.chars().count() < FILTER && !c.is_control() => self.filter.push(c),
            KeyCode::Char(_) => {}
            KeyCode::Backspace if self.filter.is_empty() => self.is_typing = false,
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => return false,
        }
        self.list_again();
        true
    }

    fn show(&mut self, at: usize) {
        self.at = at.min(Place::ALL.len() - 1);
        self.opened.clear();
    }

    fn open(&mut self) {
        let at = self.cursor().at;
        let selected = self.content().item(at).opens;
        match selected {
            Some(Opens::Cob(id)) => self.open_object(id),
            Some(Opens::Host(host)) => {
                self.filter = format!("{host}/");
                self.show(Place::Objects as usize);
                self.list_again();
                self.step(isize::MIN);
            }
            None => {}
        }
    }

    fn open_object(&mut self, id: CobId) {
        if self.opened.last().is_none_or(|(shown, _)| *shown != id) {
            self.opened.push((id, Cursor::default()));
        }
    }

    fn open_cause(&mut self) {
        let at = self.cursor().at;
        let selected = self.content().item(at).opens;
        let of = match (self.opened.last(), selected) {
            (Some((id, _)), _) => id.clone(),
            (None, Some(Opens::Cob(id))) => id,
            (None, Some(Opens::Host(_)) | None) => return,
        };
        self.open_object(object::culprit(self, &of));
    }

    fn back(&mut self) {
        if self.opened.pop().is_none() {
            if self.at == Place::Objects as usize && !self.filter.is_empty() {
                self.filter.clear();
                self.list_again();
            } else {
                self.at = 0;
            }
        }
    }

    /// Moves the cursor.
    fn step(&mut self, by: isize) {
        let last = self.content().len.saturating_sub(1);
        let cursor = self.cursor_mut();
        cursor.at = cursor.at.saturating_add_signed(by).min(last);
        self.remember();
    }

    /// The change object of the list's selected line.
    fn remember(&mut self) {
        let at = self.cursors[Place::Objects as usize].at;
        self.selected = self.list.get(at).map(|one| one.id.clone());
    }

    /// Keeps the cursor within the lines, and its line on the screen.
    fn keep_cursor(&mut self) {
        let (len, room) = (self.content().len, self.room());
        let cursor = self.cursor_mut();
        cursor.at = cursor.at.min(len.saturating_sub(1));
        cursor.first = cursor.first.min(cursor.at).min(len.saturating_sub(room));
        cursor.first = cursor.first.max((cursor.at + 1).saturating_sub(room));
        self.remember();
    }

    /// The lines of the screen for the lines of a view.
    pub(crate) fn room(&self) -> usize {
        let heading = u16::from(self.opened.is_empty() && self.at == Place::Objects as usize);
        usize::from(self.size.1.saturating_sub(FRAME + heading)).max(1)
    }

    /// The cursor of the shown view.
    pub(crate) fn cursor(&self) -> Cursor {
        self.opened.last().map_or(self.cursors[self.at], |(_, cursor)| *cursor)
    }

    fn cursor_mut(&mut self) -> &mut Cursor {
        match self.opened.last_mut() {
            Some((_, cursor)) => cursor,
            None => &mut self.cursors[self.at],
        }
    }

    /// The lines of the shown view.
    pub(crate) fn content(&self) -> Content<'_> {
        let wide = usize::from(self.size.0.saturating_sub(CURSOR));
        if let Some((id, _)) = self.opened.last() {
            return Content::of(object::items(self, id, wide));
        }
        match Place::ALL[self.at] {
            Place::Cluster => Content::of(cluster::items(self, wide)),
            Place::Switch => Content::of(switch::items(self, wide)),
            Place::Objects => {
                let columns = Columns::of(&self.list, wide);
                let make = move |at: usize| {
                    let one = &self.list[at];
                    let why = match self.find(&one.id) {
                        Some((host, cob)) => reasons(cob, host.now_ns),
                        None => "its host does not answer".to_owned(),
                    };
                    columns.item(one, &why, self.now_ms)
                };
                Content { heading: Some(columns.heading()), len: self.list.len(), make: Box::new(make) }
            }
        }
    }

    /// A change object with its host, if the host answers.
    pub(crate) fn find(&self, id: &CobId) -> Option<(&HostStatus, &CobStatus)> {
        let host = self.status.hosts.iter().find(|host| host.reachable && host.name.as_str() == id.host_str())?;
        Some((host, host.cobs.iter().find(|cob| cob.id == *id)?))
    }

    /// The class of a change object.
    pub(crate) fn class(&self, id: &CobId) -> Class {
        self.find(id).map_or(Class::Unknown, |(_, cob)| crate::page::picture::class(cob))
    }

    /// Remembers which services the switch interrupts: a later forecast has only the later interruptions.
    fn find_interruptions(&mut self) {
        let goal = switch::goal(self).filter(|goal| goal.runs).map(|goal| goal.to);
        if goal.is_some() && goal != self.goal {
            self.interrupted.clear();
            self.goal = goal;
        }
        if let Some(to) = goal {
            for (cob, lasts) in switch::interruptions(self, to) {
                self.interrupted.entry(cob).or_insert(lasts);
            }
        }
    }

    /// The questions of the shown view that are due. Answers of other views are forgotten.
    fn questions(&mut self) -> Vec<Question> {
        let goal = switch::goal(self);
        let mut wanted: BTreeMap<Question, u64> = BTreeMap::new();
        if let Some((id, _)) = self.opened.last() {
            let of = object::signature(self, id);
            wanted.insert(Question::Output(id.clone()), of);
            wanted.insert(Question::History(id.clone()), of);
        } else if let (Place::Switch, Some(goal)) = (Place::ALL[self.at], goal) {
            wanted.insert(Question::Replay(goal.to), self.changes);
        }
        if let Some(goal) = goal.filter(|goal| goal.runs && self.at != Place::Objects as usize) {
            wanted.insert(Question::Plan(goal.to), self.changes);
        }
        self.asked.retain(|question, asked| asked.is_pending || wanted.contains_key(question));
        let now_ms = self.now_ms;
        let mut due = Vec::new();
        for (question, of) in wanted {
            let asked = self.asked.entry(question.clone()).or_default();
            let is_other = asked.answer.is_none() || asked.of != of;
            if !asked.is_pending && is_other && now_ms >= asked.at_ms.saturating_add(question.pause_ms()) {
                (asked.at_ms, asked.of, asked.is_pending) = (now_ms, of, true);
                due.push(question);
            }
        }
        due
    }
}
