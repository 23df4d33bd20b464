//! Making rules, and the map that a new cluster starts with.

use crate::{CrushMap, EditError, Rule, RuleKind, Step, is_valid_name};

/// Levels of a new map, from 0 on.
const TYPE_NAMES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];
const ROOT_TYPE: i32 = 11;

/// What happens to a position of the set whose device is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleMode {
    /// The rest shifts left (replicated pools).
    FirstN,
    /// It stays a hole until refilled (erasure-coded pools).
    Indep,
}

impl RuleMode {
    /// `firstn` or `indep`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstN => "firstn",
            Self::Indep => "indep",
        }
    }

    /// The mode named `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::FirstN, Self::Indep].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// A rule that spreads a set over one level of the hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleRule<'a> {
    /// Name under which the rule is found.
    pub name: &'a str,
    /// Name of the bucket to take.
    pub root: &'a str,
    /// Level to spread over; `osd` for devices.
    pub failure_domain: &'a str,
    /// Device class to restrict to, or empty.
    pub device_class: &'a str,
    /// Replicated or erasure-coded.
    pub mode: RuleMode,
    /// Kind of pool it is for.
    pub kind: RuleKind,
    /// Least and largest size of the pools that it is for.
    pub sizes: (u8, u8),
}

impl CrushMap {
    /// The map of a new cluster: the usual levels, an empty root `default` and the rule `replicated_rule` that
    /// spreads over `failure_domain` (over `host` if there is no such level).
    ///
    /// # Panics
    /// Never: an empty map has room for its first bucket and rule.
    #[must_use]
    pub fn fresh(failure_domain: &str) -> Self {
        let mut map =
            Self { type_names: (0..).zip(TYPE_NAMES.map(String::from)).collect(), ..Self::default() };
        let rule = SimpleRule {
            name: "replicated_rule",
            root: "default",
            failure_domain,
            device_class: "",
            mode: RuleMode::FirstN,
            kind: RuleKind::REPLICATED,
            sizes: (1, 10),
        };
        map.add_bucket(ROOT_TYPE, "default").expect("an empty map has room for its first bucket");
        // An unknown level must not leave the cluster without a rule.
        if map.add_simple_rule(&rule).is_err() {
            let rule = SimpleRule { failure_domain: "host", ..rule };
            map.add_simple_rule(&rule).expect("an empty map has room for its first rule");
        }
        map
    }

    /// Adds a rule in the first free slot; returns its id. Ceph `add_simple_rule`.
    ///
    /// # Errors
    /// [`EditError::NameTaken`], [`EditError::NoSuchItem`], [`EditError::NoSuchType`],
    /// [`EditError::NoSuchClass`], [`EditError::TooMany`].
    pub fn add_simple_rule(&mut self, rule: &SimpleRule<'_>) -> Result<u8, EditError> {
        if self.rule_by_name(rule.name).is_some() {
            return Err(EditError::NameTaken(rule.name.to_owned()));
        }
        let root = self.rule_root(rule.root, rule.device_class)?;
        let domain = rule.failure_domain;
        let kind = self.type_by_name(domain).ok_or_else(|| EditError::NoSuchType(domain.to_owned()))?;
        let mut steps = Vec::new();
        if rule.mode == RuleMode::Indep {
            steps.extend([Step::SetChooseLeafTries(5), Step::SetChooseTries(100)]);
        }
        steps.push(Step::Take(root));
        steps.push(match (rule.mode, kind) {
            (RuleMode::FirstN, 0) => Step::ChooseFirstN { count: 0, kind },
            (RuleMode::FirstN, _) => Step::ChooseLeafFirstN { count: 0, kind },
            (RuleMode::Indep, 0) => Step::ChooseIndep { count: 0, kind },
            (RuleMode::Indep, _) => Step::ChooseLeafIndep { count: 0, kind },
        });
        steps.push(Step::Emit);
        let (min_size, max_size) = rule.sizes;
        let id = self.rules.iter().position(Option::is_none).unwrap_or(self.rules.len());
        let ruleset = u8::try_from(id).map_err(|_| EditError::TooMany("rules"))?;
        self.put_rule(Rule { ruleset, kind: rule.kind, min_size, max_size, steps }, rule.name);
        Ok(ruleset)
    }

    /// The bucket to take: the named one, or its shadow for a class.
    fn rule_root(&self, root: &str, class: &str) -> Result<i32, EditError> {
        let id = self.item_by_name(root).ok_or_else(|| EditError::NoSuchItem(root.to_owned()))?;
        if class.is_empty() {
            return Ok(id);
        }
        let number = self.class_by_name(class).ok_or_else(|| EditError::NoSuchClass(class.to_owned()))?;
        let shadow = self.class_buckets.get(&id).and_then(|ids| ids.get(&number));
        shadow.copied().ok_or_else(|| EditError::NoSuchItem(format!("{root}~{class}")))
    }

    fn put_rule(&mut self, rule: Rule, name: &str) {
        let slot = usize::from(rule.ruleset);
        if self.rules.len() <= slot {
            self.rules.resize(slot + 1, None);
        }
        self.rule_names.insert(rule.ruleset.into(), name.to_owned());
        if let Some(place) = self.rules.get_mut(slot) {
            *place = Some(rule);
        }
    }

    /// Removes the rule of this name. The caller makes sure that no pool uses it.
    ///
    /// # Errors
    /// [`EditError::NoSuchRule`].
    pub fn remove_rule(&mut self, name: &str) -> Result<(), EditError> {
        let missing = || EditError::NoSuchRule(name.to_owned());
        let id = self.rule_by_name(name).ok_or_else(missing)?;
        self.rule_names.remove(&id);
        if let Some(slot) = usize::try_from(id).ok().and_then(|slot| self.rules.get_mut(slot)) {
            *slot = None;
        }
        Ok(())
    }

    /// Gives a rule another name.
    ///
    /// # Errors
    /// [`EditError::NoSuchRule`], [`EditError::NameTaken`], [`EditError::BadName`].
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id = self.rule_by_name(from).ok_or_else(|| EditError::NoSuchRule(from.to_owned()))?;
        if self.rule_by_name(to).is_some() {
            return Err(EditError::NameTaken(to.to_owned()));
        }
        if !is_valid_name(to) {
            return Err(EditError::BadName(to.to_owned()));
        }
        self.rule_names.insert(id, to.to_owned());
        Ok(())
    }

    /// Name of a rule that takes `item`, if there is one.
    #[must_use]
    pub fn rule_that_takes(&self, item: i32) -> Option<String> {
        let (id, _) = (0..)
            .zip(&self.rules)
            .find(|(_, rule)| rule.as_ref().is_some_and(|rule| rule.steps.contains(&Step::Take(item))))?;
        Some(self.rule_names.get(&id).cloned().unwrap_or_else(|| id.to_string()))
    }

    /// The items that a rule takes, in order.
    #[must_use]
    pub fn rule_takes(&self, rule: &Rule) -> Vec<i32> {
        let takes = rule.steps.iter().filter_map(|step| match step {
            Step::Take(item) => Some(*item),
            _ => None,
        });
        takes.collect()
    }
}
