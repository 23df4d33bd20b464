//! [`Facts`]: what the cluster said. Texts of it come from clients, too, and are made safe for a terminal before they are shown.

use serde_json::Value;
use std::collections::BTreeMap;

/// Pool, namespace, name, and the counts of one image.
type ImageKey = (String, String, String);

/// One answer to `nacre overview`.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    tree: Value,
    /// What images had counted at the look before, and when that was.
    before: Option<(u64, BTreeMap<ImageKey, Value>)>,
}

/// A text without what a terminal would take for an order.
pub(crate) fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

/// A number that is not negative; 0 where there is none.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The elements of an array.
pub(crate) fn all(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn key(image: &Value) -> ImageKey {
    (text(&image["pool"]), text(&image["namespace"]), text(&image["name"]))
}

impl Facts {
    pub(crate) fn new(tree: Value) -> Self {
        Self { tree, before: None }
    }

    /// The next answer; what images do is told by both.
    pub(crate) fn next(&self, tree: Value) -> Self {
        let at = number(&self["at"]);
        // Who was not told of them has nothing to compare with.
        let images = all(&self["images"]).map(|image| (key(image), image.clone())).collect();
        // Of two answers of the same second the rates would be anything.
        let before = if number(&tree["at"]) > at { Some((at, images)) } else { self.before.clone() };
        Self { tree, before }
    }

    /// By how much a count of an image has grown per second; `None` at the first look that tells of it.
    pub(crate) fn image_rate(&self, image: &Value, count: &str) -> Option<u64> {
        let (at, before) = self.before.as_ref()?;
        let then = number(&before.get(&key(image))?[count]);
        number(&image[count]).saturating_sub(then).checked_div(number(&self["at"]).saturating_sub(*at))
    }
}

impl std::ops::Index<&str> for Facts {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        &self.tree[name]
    }
}
