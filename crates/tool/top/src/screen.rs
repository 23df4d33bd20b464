//! [`App`]: the facts in a terminal, and what keys do.

use crate::facts::{Facts, number, text};
use crate::tables::{self, Cell, Line, Mood, Table};
use crate::watch::News;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Shown, Span};
use ratatui::widgets::{Paragraph, Row, Sparkline, Table as Grid, TableState, Tabs, Wrap};
use std::collections::VecDeque;

/// Looks of which the overview shows what clients did.
const LOOKS_MAX: usize = 300;
const KEYS: &str = " q quit   Tab or 1-7 tabs   s sort by the next column   r reverse   arrows scroll ";

/// What is to be done after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Nothing,
    Draw,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Overview,
    Osds,
    Devices,
    Pools,
    Images,
    Clients,
    Requests,
}

impl Tab {
    const ALL: [Self; 7] =
        [Self::Overview, Self::Osds, Self::Devices, Self::Pools, Self::Images, Self::Clients, Self::Requests];

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "1 Overview",
            Self::Osds => "2 OSDs",
            Self::Devices => "3 Devices",
            Self::Pools => "4 Pools",
            Self::Images => "5 Images",
            Self::Clients => "6 Clients",
            Self::Requests => "7 Slow requests",
        }
    }

    /// By which column it is sorted at first.
    const fn sorted_by(self) -> usize {
        match self {
            // What writes take at the device.
            Self::Osds => 10,
            Self::Pools => 5,
            Self::Images | Self::Requests => 1,
            // Processor time.
            Self::Clients => 4,
            Self::Overview | Self::Devices => 0,
        }
    }
}

/// How each tab is shown.
#[derive(Debug, Clone, Copy)]
struct View {
    sorted_by: usize,
    reversed: bool,
    row: usize,
}

/// What is shown, and how.
pub(crate) struct App {
    facts: Facts,
    /// Why the facts are not those of now.
    trouble: Option<String>,
    tab: usize,
    views: [View; Tab::ALL.len()],
    /// Operations of clients per second at each look: reads and writes.
    looks: VecDeque<(u64, u64)>,
}

impl App {
    pub(crate) fn new(facts: Facts) -> Self {
        let views = Tab::ALL.map(|tab| View { sorted_by: tab.sorted_by(), reversed: false, row: 0 });
        let mut app = Self { facts, trouble: None, tab: 0, views, looks: VecDeque::new() };
        app.look();
        app
    }

    fn look(&mut self) {
        if self.facts["io"].is_null() {
            return;
        }
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        let io = &self.facts["io"];
        self.looks.push_back((number(&io["read_ops"]), number(&io["write_ops"])));
    }

    /// The cluster has said something, or not.
    pub(crate) fn take_in(&mut self, news: News) {
        match news {
            Ok(tree) => {
                self.facts = self.facts.next(tree);
                self.trouble = None;
                self.look();
            }
            Err(why) => self.trouble = Some(text(&why.into())),
        }
    }

    /// A key was pressed, or the like.
    pub(crate) fn event(&mut self, event: &Event) -> After {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key),
            Event::Resize(..) => After::Draw,
            _ => After::Nothing,
        }
    }

    fn key(&mut self, key: &KeyEvent) -> After {
        let columns = self.table().map_or(0, |table| table.head.len());
        let Some(view) = self.views.get_mut(self.tab) else { return After::Nothing };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return After::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return After::End,
            KeyCode::Tab | KeyCode::Right => self.tab = (self.tab + 1) % Tab::ALL.len(),
            KeyCode::BackTab | KeyCode::Left => self.tab = (self.tab + Tab::ALL.len() - 1) % Tab::ALL.len(),
            KeyCode::Char(digit @ '1'..='7') => self.tab = digit as usize - '1' as usize,
            KeyCode::Char('s') if columns > 0 => view.sorted_by = (view.sorted_by + 1) % columns,
            KeyCode::Char('r') => view.reversed = !view.reversed,
            KeyCode::Down | KeyCode::Char('j') => view.row += 1,
            KeyCode::Up | KeyCode::Char('k') => view.row = view.row.saturating_sub(1),
            KeyCode::PageDown => view.row += 20,
            KeyCode::PageUp => view.row = view.row.saturating_sub(20),
            KeyCode::Home => view.row = 0,
            _ => return After::Nothing,
        }
        After::Draw
    }

    fn shown(&self) -> Tab {
        Tab::ALL.get(self.tab).copied().unwrap_or(Tab::Overview)
    }

    /// The table of the tab that is shown, if it has one.
    fn table(&self) -> Option<Table> {
        Some(match self.shown() {
            Tab::Overview => return None,
            Tab::Osds => tables::osds(&self.facts),
            Tab::Devices => tables::devices(&self.facts),
            Tab::Pools => tables::pools(&self.facts),
            Tab::Images => tables::images(&self.facts),
            Tab::Clients => tables::clients(&self.facts),
            Tab::Requests => tables::requests(&self.facts),
        })
    }

    /// Draws all of it.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, tabs, body, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.top(), top);
        let titles = Tabs::new(Tab::ALL.map(Tab::name)).select(self.tab);
        frame.render_widget(titles.highlight_style(Style::new().add_modifier(Modifier::REVERSED)), tabs);
        match self.table() {
            Some(table) => self.draw_table(table, frame, body),
            None => self.draw_overview(frame, body),
        }
        frame.render_widget(Paragraph::new(KEYS).style(style(Mood::Soft)), keys);
    }

    fn top(&self) -> Paragraph<'static> {
        let health = tables::health(&self.facts).into_iter().next().unwrap_or_default();
        let cluster = format!("  cluster {}", text(&self.facts["fsid"]));
        let mut spans =
            vec![Span::styled(health.1, style(health.0).add_modifier(Modifier::BOLD)), Span::raw(cluster)];
        if let Some(why) = &self.trouble {
            spans.push(Span::styled(format!("  NOT UP TO DATE: {why}"), style(Mood::Error)));
        }
        Paragraph::new(Shown::from(spans))
    }

    fn draw_overview(&mut self, frame: &mut Frame<'_>, body: Rect) {
        let mut lines = tables::figures(&self.facts);
        lines.push((Mood::Heading, "Health".to_owned()));
        lines.extend(tables::health(&self.facts).into_iter().skip(1));
        if lines.last().is_some_and(|(mood, _)| *mood == Mood::Heading) {
            lines.push((Mood::Good, "Everything is well.".to_owned()));
        }
        let slow = tables::requests(&self.facts).rows.len();
        if slow > 0 {
            lines.push((Mood::Warning, format!("{slow} requests are slow: tab 7 says where they wait")));
        }
        let [text, reads, writes] =
            Layout::vertical([Constraint::Min(1), Constraint::Length(4), Constraint::Length(4)]).areas(body);
        let view = &mut self.views[0];
        view.row = view.row.min(lines.len().saturating_sub(1));
        let scroll = u16::try_from(view.row).unwrap_or(u16::MAX);
        let shown: Vec<Shown<'_>> = lines.into_iter().map(line).collect();
        frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }).scroll((scroll, 0)), text);
        self.draw_looks(frame, reads, "reads/s", |look| look.0);
        self.draw_looks(frame, writes, "writes/s", |look| look.1);
    }

    fn draw_looks(&self, frame: &mut Frame<'_>, area: Rect, name: &str, of: impl Fn(&(u64, u64)) -> u64) {
        let values: Vec<u64> = self.looks.iter().rev().take(area.width.into()).map(of).collect();
        let values: Vec<u64> = values.into_iter().rev().collect();
        let most = values.iter().copied().max().unwrap_or(0);
        let title = format!("{name} of the last looks, at most {}", nacre_format::si(most));
        let [head, graph] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
        frame.render_widget(Paragraph::new(title).style(style(Mood::Soft)), head);
        frame.render_widget(Sparkline::default().data(&values).style(Style::new().fg(Color::Blue)), graph);
    }

    fn draw_table(&mut self, mut table: Table, frame: &mut Frame<'_>, body: Rect) {
        let Some(view) = self.views.get_mut(self.tab) else { return };
        if table.rows.is_empty() {
            return frame.render_widget(Paragraph::new(table.none), body);
        }
        view.sorted_by = view.sorted_by.min(table.head.len().saturating_sub(1));
        view.row = view.row.min(table.rows.len() - 1);
        table.sort(view.sorted_by, view.reversed);
        let width = |column: usize| {
            let cells =
                table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
            let head = table.head.get(column).map_or(0, |name| name.chars().count() + 2);
            let width = cells.chain([head]).max().unwrap_or(0);
            u16::try_from(width).unwrap_or(u16::MAX)
        };
        let last = table.head.len() - 1;
        let widths = (0..=last).map(|column| match column {
            // The last one may be long and is cut.
            column if column == last => Constraint::Min(width(column).min(20)),
            column => Constraint::Length(width(column)),
        });
        let widths: Vec<Constraint> = widths.collect();
        let arrow = if view.reversed { '^' } else { 'v' };
        let head = table.head.iter().enumerate().map(|(column, name)| match column == view.sorted_by {
            true => format!("{name} {arrow}"),
            false => name.clone(),
        });
        let head = Row::new(head).style(style(Mood::Heading));
        let rows = table.rows.iter().map(|row| Row::new(row.iter().map(cell)));
        let grid = Grid::new(rows, widths)
            .header(head)
            .row_highlight_style(Style::new().add_modifier(Modifier::BOLD));
        let mut state = TableState::default().with_selected(view.row);
        frame.render_stateful_widget(grid, body, &mut state);
    }
}

fn style(mood: Mood) -> Style {
    match mood {
        Mood::Plain => Style::new(),
        Mood::Good => Style::new().fg(Color::Green),
        Mood::Warning => Style::new().fg(Color::Yellow),
        Mood::Error => Style::new().fg(Color::Red),
        Mood::Soft => Style::new().add_modifier(Modifier::DIM),
        Mood::Heading => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
    }
}

fn line((mood, text): Line) -> Shown<'static> {
    Shown::styled(text, style(mood))
}

fn cell(cell: &Cell) -> ratatui::widgets::Cell<'static> {
    let heat = match cell.heat {
        Some(part) if part >= 0.5 => Style::new().bg(Color::Blue).fg(Color::White),
        Some(part) if part >= 0.1 => Style::new().bg(Color::Cyan).fg(Color::Black),
        Some(_) | None => Style::new(),
    };
    ratatui::widgets::Cell::from(cell.text.clone()).style(style(cell.mood).patch(heat))
}
