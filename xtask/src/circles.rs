//! No circles of modules: of the children of one module, none uses another that leads back to it.
//!
//! A path is followed through `pub use` to the file that defines what it names, so a crate's root that only passes names on is in no
//! circle. What a module uses of its own parent counts as no edge, nor does what only tests use. Method calls are not followed; an
//! `impl` block counts by the path of its type.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Reports each circle.
pub(crate) fn check(wrong: &mut Vec<String>) -> Result<()> {
    let mut found = BTreeMap::new();
    for layer in folders(Path::new("crates"))? {
        for package in folders(&layer)? {
            for root in ["lib.rs", "main.rs"].map(|name| package.join("src").join(name)) {
                if root.exists() {
                    let mut tree = Tree::default();
                    tree.load(&root, Vec::new())?;
                    tree.circles(&package, &mut found);
                }
            }
        }
    }
    for (place, modules) in &found {
        wrong.push(format!("{place}: its modules use each other in a circle: {}", modules.join(", ")));
    }
    Ok(())
}

/// The folders in a folder, in their order.
pub(crate) fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
    let mut out: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    out.retain(|path| path.is_dir());
    out.sort();
    Ok(out)
}

/// A module's path from the crate's root.
type ModulePath = Vec<String>;

/// One crate's modules.
#[derive(Default)]
struct Tree {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Names that are defined here.
    items: BTreeSet<String>,
    /// Names that `use` brings in, and the paths behind them.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// All paths in its text, imports among them.
    paths: Vec<Vec<String>>,
}

impl Tree {
    fn load(&mut self, file: &Path, module: ModulePath) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let own_folder = ["lib", "main", "mod"].contains(&name.as_str());
        let parent = file.parent().unwrap_or(Path::new("."));
        let folder = if own_folder { parent.to_path_buf() } else { parent.join(name) };
        self.add(parsed.items, &folder, module)
    }

    fn add(&mut self, items: Vec<syn::Item>, folder: &Path, module: ModulePath) -> Result<()> {
        let mut here = Module::default();
        for item in items.into_iter().filter(|item| !is_for_tests(item)) {
            match item {
                syn::Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let path = [module.clone(), vec![name.clone()]].concat();
                    match child.content {
                        Some((_, items)) => self.add(items, &folder.join(&name), path)?,
                        None => self.load(&file_of(folder, &name, &child.attrs), path)?,
                    }
                }
                syn::Item::Use(used) => here.import(Vec::new(), &used.tree),
                other => {
                    here.items.extend(name_of(&other));
                    here.visit_item(&other);
                }
            }
        }
        self.modules.insert(module, here);
        Ok(())
    }

    /// The module that defines what `path` names in `module`; `None` for other crates' items.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        if depth == 0 {
            return None;
        }
        let mut at = module.to_vec();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => (),
            "super" => drop(at.pop()?),
            _ => return self.lookup(module, first, rest, depth),
        }
        match rest.split_first() {
            None => Some(at),
            Some((next, _)) if next == "super" => self.resolve(&at, rest, depth),
            Some((next, rest)) => self.lookup(&at, next, rest, depth),
        }
    }

    fn lookup(&self, module: &[String], name: &String, rest: &[String], depth: usize) -> Option<ModulePath> {
        let child = [module, std::slice::from_ref(name)].concat();
        if self.modules.contains_key(&child) {
            return match rest.split_first() {
                None => Some(child),
                Some((next, rest)) => self.lookup(&child, next, rest, depth),
            };
        }
        let here = self.modules.get(module)?;
        if here.items.contains(name) {
            return Some(module.to_vec());
        }
        if let Some(target) = here.imports.get(name) {
            let full = [target.as_slice(), rest].concat();
            return self.resolve(module, &full, depth - 1);
        }
        here.globs.iter().find_map(|glob| {
            let full = [glob.as_slice(), std::slice::from_ref(name), rest].concat();
            self.resolve(module, &full, depth - 1)
        })
    }

    fn circles(&self, package: &Path, found: &mut BTreeMap<String, Vec<String>>) {
        // For each module: which of its children uses which.
        let mut uses: BTreeMap<&[String], BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for path in &module.paths {
                let Some(to) = self.resolve(from, path, 8) else { continue };
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                    uses.entry(&from[..common]).or_default().entry(a.clone()).or_default().insert(b.clone());
                }
            }
        }
        for (parent, edges) in uses {
            let on_circle =
                edges.keys().filter(|name| reaches(&edges, name, name)).cloned().collect::<Vec<_>>();
            if !on_circle.is_empty() {
                let place = parent.iter().fold(package.to_path_buf(), |path, name| path.join(name));
                found.insert(place.display().to_string(), on_circle);
            }
        }
    }
}

fn reaches(edges: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        for used in edges.get(name).into_iter().flatten() {
            if used == to {
                return true;
            }
            if seen.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    false
}

fn file_of(folder: &Path, name: &str, attrs: &[syn::Attribute]) -> PathBuf {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("path")) {
        if let syn::Meta::NameValue(pair) = &attr.meta
            && let syn::Expr::Lit(literal) = &pair.value
            && let syn::Lit::Str(text) = &literal.lit
        {
            return folder.join(text.value());
        }
    }
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

fn is_for_tests(item: &syn::Item) -> bool {
    use syn::Item::*;
    let attrs = match item {
        Mod(item) => &item.attrs,
        Use(item) => &item.attrs,
        Fn(item) => &item.attrs,
        Impl(item) => &item.attrs,
        _ => return false,
    };
    let is_test = |attr: &syn::Attribute| match &attr.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().contains("test"),
        _ => false,
    };
    attrs.iter().any(is_test)
}

fn name_of(item: &syn::Item) -> Option<String> {
    use syn::Item::*;
    let ident = match item {
        Const(item) => &item.ident,
        Enum(item) => &item.ident,
        Fn(item) => &item.sig.ident,
        Static(item) => &item.ident,
        Struct(item) => &item.ident,
        Trait(item) => &item.ident,
        Type(item) => &item.ident,
        Union(item) => &item.ident,
        Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

impl Module {
    fn import(&mut self, mut prefix: Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(prefix.clone(), tree);
                }
            }
            syn::UseTree::Name(name) => self.import_as(prefix, &name.ident, &name.ident),
            syn::UseTree::Rename(renamed) => self.import_as(prefix, &renamed.ident, &renamed.rename),
            syn::UseTree::Glob(_) => {
                self.paths.push(prefix.clone());
                self.globs.push(prefix);
            }
        }
    }

    fn import_as(&mut self, mut path: Vec<String>, ident: &syn::Ident, name: &syn::Ident) {
        let last = path.last().cloned();
        let name =
            if ident == "self" && name == "self" { last.unwrap_or_default() } else { name.to_string() };
        if ident != "self" {
            path.push(ident.to_string());
        }
        self.paths.push(path.clone());
        self.imports.insert(name, path);
    }
}

impl<'a> Visit<'a> for Module {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, used: &'a syn::ItemUse) {
        self.import(Vec::new(), &used.tree);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(text: &str) -> BTreeMap<String, Vec<String>> {
        let mut tree = Tree::default();
        tree.add(syn::parse_file(text).unwrap().items, Path::new("unused"), Vec::new()).unwrap();
        let mut found = BTreeMap::new();
        tree.circles(Path::new("c"), &mut found);
        found
    }

    #[test]
    fn a_circle_is_found_through_names_that_are_passed_on() {
        let found = circles(
            "mod a { use crate::B; pub struct A; mod deep { fn f() { super::super::c::f() } } }
             mod b { pub struct B(crate::c::C); }
             mod c { use crate::a; pub struct C; fn f() { a::A; } }
             pub use b::B;
             mod outside { use crate::a::A; }",
        );
        assert_eq!(found, BTreeMap::from([("c".to_owned(), ["a", "b", "c"].map(str::to_owned).to_vec())]));
    }

    #[test]
    fn parents_and_tests_make_no_circle() {
        let found = circles(
            "use a::A; pub struct Root; mod a { use super::Root; pub struct A; #[cfg(test)] mod tests { use crate::b::B; } }
             mod b { use crate::a::A; pub struct B; }",
        );
        assert!(found.is_empty(), "{found:?}");
    }
}
