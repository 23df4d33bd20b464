//! [`Table`]: columns as wide as their widest cell, two spaces between them. Ceph `TextTable`.

/// Where a cell's text stands within its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Padding on the right, also behind the last column.
    Left,
    /// Padding on the left.
    Right,
}

#[derive(Debug)]
struct Column {
    heading: &'static str,
    heading_align: Align,
    align: Align,
    width: usize,
}

/// A table for people.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of `(heading, alignment of heading, alignment of cells)`.
    #[must_use]
    pub fn new(columns: &[(&'static str, Align, Align)]) -> Self {
        let columns = columns.iter().map(|(heading, heading_align, align)| Column {
            heading,
            heading_align: *heading_align,
            align: *align,
            width: heading.len(),
        });
        Self { columns: columns.collect(), rows: Vec::new() }
    }

    /// A table whose headings stand where its cells stand.
    #[must_use]
    pub fn aligned(columns: &[(&'static str, Align)]) -> Self {
        let columns: Vec<_> = columns.iter().map(|(heading, align)| (*heading, *align, *align)).collect();
        Self::new(&columns)
    }

    /// Appends a row; missing cells are empty, cells beyond the last column are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.columns.len(), String::new());
        for (column, cell) in self.columns.iter_mut().zip(&cells) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// Headings and rows, each line ended.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        if self.columns.iter().any(|column| !column.heading.is_empty()) {
            let headings =
                self.columns.iter().map(|column| (column.heading, column.heading_align, column.width));
            line(&mut out, headings);
        }
        for row in &self.rows {
            let cells = self.columns.iter().zip(row);
            line(&mut out, cells.map(|(column, cell)| (cell.as_str(), column.align, column.width)));
        }
        out
    }
}

fn line<'a>(out: &mut String, cells: impl Iterator<Item = (&'a str, Align, usize)>) {
    for (index, (text, align, width)) in cells.enumerate() {
        if index > 0 {
            out.push_str("  ");
        }
        match align {
            Align::Left => out.push_str(&format!("{text:<width$}")),
            Align::Right => out.push_str(&format!("{text:>width$}")),
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_on_their_side() {
        let mut table = Table::new(&[("ID", Align::Left, Align::Right), ("NAME", Align::Left, Align::Left)]);
        table.row(["-1".to_owned(), "root default".to_owned()]);
        table.row(["0".to_owned(), "  osd.0".to_owned()]);
        assert_eq!(table.render(), "ID  NAME        \n-1  root default\n 0    osd.0     \n");
    }
}
