//! [`Who`]: a section of the configuration with its mask.

use nacre_types::{AuthName, EntityKind};
use std::collections::BTreeMap;
use std::fmt;

/// An entity as masks see it.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Name of the entity.
    pub name: &'a AuthName,
    /// Device class, for OSDs that have one.
    pub device_class: Option<&'a String>,
    /// Bucket types and names above it in the CRUSH map.
    pub location: &'a BTreeMap<String, String>,
}

/// Which daemons a value concerns, least specific first: `global`, `osd`, `osd.3`, each perhaps with a mask
/// (`osd/class:ssd`, `osd/host:a`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// `None` for all daemons and clients.
    pub(super) kind: Option<EntityKind>,
    /// Name prefix behind the kind (`admin`, `rgw.a`), empty for all of the kind.
    pub(super) id: String,
    /// Kind of place and its name, both empty without a mask.
    pub(super) mask: (String, String),
}

impl Who {
    /// All daemons and clients.
    #[must_use]
    pub fn global() -> Self {
        Self { kind: None, id: String::new(), mask: Default::default() }
    }

    /// Reads `section[/mask]`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (section, mask) = match text.split_once('/') {
            Some((section, mask)) => (section, parse_mask(mask)?),
            None => match parse_mask(text) {
                Some(mask) => ("global", mask),
                None => (text, Default::default()),
            },
        };
        let (kind, id) = match section.split_once('.') {
            Some((kind, id)) => (Some(EntityKind::parse(kind)?), id),
            None if section == "global" => (None, ""),
            None => (Some(EntityKind::parse(section)?), ""),
        };
        Some(Self { kind, id: id.to_owned(), mask })
    }

    /// The section without its mask.
    #[must_use]
    pub fn section(&self) -> String {
        match self.kind {
            None => "global".to_owned(),
            Some(kind) if self.id.is_empty() => kind.as_str().to_owned(),
            Some(kind) => format!("{}.{}", kind.as_str(), self.id),
        }
    }

    /// The mask as printed (`class:ssd`), or nothing.
    #[must_use]
    pub fn mask(&self) -> String {
        let (kind, name) = &self.mask;
        if kind.is_empty() { String::new() } else { format!("{kind}:{name}") }
    }

    /// Kind and name of the mask's place, such as `("host", "a")`.
    #[must_use]
    pub fn mask_parts(&self) -> Option<(&str, &str)> {
        let (kind, name) = &self.mask;
        (!kind.is_empty()).then_some((kind, name))
    }

    /// True when values of this section concern `target`.
    pub(crate) fn concerns(&self, target: &Target<'_>) -> bool {
        let kind_fits = self.kind.is_none_or(|kind| kind == target.name.kind);
        let id = &self.id;
        let rest = target.name.id.strip_prefix(id.as_str());
        let id_fits = id.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let (mask_kind, mask_name) = &self.mask;
        let mask_fits = match mask_kind.as_str() {
            "" => true,
            "class" => target.device_class == Some(mask_name),
            kind => target.location.get(kind) == Some(mask_name),
        };
        kind_fits && id_fits && mask_fits
    }

    /// Orders by how specific the section is; values of greater rank win.
    pub(crate) fn rank(&self) -> (usize, usize) {
        let depth = usize::from(self.kind.is_some())
            + if self.id.is_empty() { 0 } else { 1 + self.id.split('.').count() };
        (depth, usize::from(!self.mask.0.is_empty()))
    }
}

fn parse_mask(text: &str) -> Option<(String, String)> {
    let (kind, name) = text.split_once(':')?;
    (!kind.is_empty() && !name.is_empty()).then(|| (kind.to_owned(), name.to_owned()))
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.section())?;
        if self.mask.0.is_empty() { Ok(()) } else { write!(f, "/{}", self.mask()) }
    }
}
