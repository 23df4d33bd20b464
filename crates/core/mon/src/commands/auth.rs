//! Commands about keys and caps: `auth ls`, `auth get-or-create` and the like.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use nacre_auth::{AuthChange, AuthCommandError, Caps, CryptoKey, EntityAuth, Keyring};
use nacre_format::{Node, Section};
use nacre_types::{AuthName, Errno};

pub(super) const COMMANDS: &[Command] = &[
    command("auth ls", "auth", "rx", "All entities with their keys and caps", ls),
    command("auth list", "auth", "rx", "All entities with their keys and caps", ls),
    command("auth get name=entity,type=CephString", "auth", "rx", "Keyring of an entity, caps included", get),
    command("auth get-key name=entity,type=CephString", "auth", "rx", "Key of an entity", get_key),
    command("auth print-key name=entity,type=CephString", "auth", "rx", "Key of an entity", get_key),
    command("auth print_key name=entity,type=CephString", "auth", "rx", "Key of an entity", get_key),
    command(
        "auth export name=entity,type=CephString,req=false",
        "auth",
        "rx",
        "Keyring of an entity, or of all",
        export,
    ),
    command("auth import", "auth", "rwx", "Take over the entities of a keyring", import),
    command(
        "auth add name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "auth",
        "rwx",
        "Add an entity, with the input's key or a new one",
        add,
    ),
    command(
        "auth get-or-create name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "auth",
        "rwx",
        "Keyring of an entity, which is made when it is not there",
        get_or_create,
    ),
    command(
        "auth get-or-create-key name=entity,type=CephString name=caps,type=CephString,n=N,req=false",
        "auth",
        "rwx",
        "Key of an entity, which is made when it is not there",
        get_or_create_key,
    ),
    command(
        "auth caps name=entity,type=CephString name=caps,type=CephString,n=N",
        "auth",
        "rwx",
        "Replace an entity's caps",
        caps,
    ),
    command(
        "auth rotate name=entity,type=CephString",
        "auth",
        "rwx",
        "Give an entity a new key and show it",
        rotate,
    ),
    command("auth rm name=entity,type=CephString", "auth", "rwx", "Remove an entity", rm),
    command("auth del name=entity,type=CephString", "auth", "rwx", "Remove an entity", rm),
];

/// Largest keyring that is read.
const KEYRING_BYTES_MAX: usize = 1 << 20;

fn failure(error: &AuthCommandError) -> Failure {
    refuse(Errno::from(error), error.to_string())
}

fn entity(call: &Call<'_>) -> Result<AuthName, Failure> {
    let text = call.args.text("entity");
    AuthName::parse(text).ok_or_else(|| refuse(Errno::EINVAL, format!("invalid entity_auth {text}")))
}

fn wanted_caps(call: &Call<'_>) -> Result<Caps, Failure> {
    let words = call.args.list("caps");
    if !words.len().is_multiple_of(2) {
        return fail(Errno::EINVAL, "bad capabilities request; odd number of arguments");
    }
    let pairs = words.chunks_exact(2).filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone())));
    Ok(pairs.collect())
}

fn keyring_text(name: &AuthName, auth: &EntityAuth) -> String {
    let caps: String =
        auth.caps.iter().map(|(service, text)| format!("\tcaps {service} = \"{text}\"\n")).collect();
    format!("[{name}]\n\tkey = {}\n{caps}", auth.key.to_text())
}

fn tree(name: &AuthName, auth: &EntityAuth) -> Section {
    let caps: Section = auth.caps.iter().map(|(service, text)| (service.clone(), text.as_str())).collect();
    Section::new().with("entity", name.to_string()).with("key", auth.key.to_text()).with("caps", caps)
}

fn known(call: &Call<'_>, name: &AuthName, text: String) -> Result<EntityAuth, Failure> {
    call.state.auth.keys().entity(name).cloned().ok_or_else(|| refuse(Errno::ENOENT, text))
}

/// One entity as a keyring.
fn one(call: &Call<'_>, name: &AuthName, auth: &EntityAuth) -> Answer {
    call.either("auth_dump", keyring_text(name, auth), Node::array("auth_entities", [tree(name, auth)]))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let entities = call.state.auth.keys().entities();
    if !call.is_plain() {
        let all = entities.map(|(name, auth)| tree(name, auth));
        return call.tree("auth_ls", Section::new().with("auth_dump", Node::array("auth_entities", all)));
    }
    let one = |(name, auth): (&AuthName, &EntityAuth)| {
        let caps: String =
            auth.caps.iter().map(|(service, text)| format!("\tcaps: [{service}] {text}\n")).collect();
        format!("{name}\n\tkey: {}\n{caps}", auth.key.to_text())
    };
    let text: String = entities.map(one).collect();
    Ok(Output { text: "installed auth entries:\n".to_owned(), ..Output::data(text) })
}

fn get(call: &mut Call<'_>) -> Answer {
    let name = entity(call)?;
    let auth = known(call, &name, format!("failed to find {name} in keyring"))?;
    let output = one(call, &name, &auth)?;
    Ok(Output { text: format!("exported keyring for {name}"), ..output })
}

fn get_key(call: &mut Call<'_>) -> Answer {
    let name = entity(call)?;
    let key = known(call, &name, format!("don't have {name}"))?.key.to_text();
    call.either("auth", key.clone(), Section::new().with("key", key))
}

fn export(call: &mut Call<'_>) -> Answer {
    if call.args.text_opt("entity").is_none() {
        let entities = call.state.auth.keys().entities();
        let plain: String = entities.map(|(name, auth)| keyring_text(name, auth)).collect();
        let all = call.state.auth.keys().entities().map(|(name, auth)| tree(name, auth));
        let output = call.either("auth_dump", plain, Node::array("auth_entities", all))?;
        return Ok(Output { text: "exported master keyring".to_owned(), ..output });
    }
    let name = entity(call)?;
    let auth = known(call, &name, format!("no key for {name}"))?;
    let output = one(call, &name, &auth)?;
    Ok(Output { text: format!("export {name}"), ..output })
}

fn input_keyring(call: &Call<'_>) -> Result<Keyring, Failure> {
    if call.data.len() > KEYRING_BYTES_MAX {
        return fail(Errno::EINVAL, "keyring is too large");
    }
    let text = String::from_utf8_lossy(call.data);
    Keyring::parse(&text).map_err(|error| refuse(Errno::EINVAL, format!("error decoding keyring {error}")))
}

fn import(call: &mut Call<'_>) -> Answer {
    if call.data.is_empty() {
        return fail(Errno::EINVAL, "auth import: no data supplied");
    }
    let keyring = input_keyring(call)?;
    if keyring.is_empty() {
        return fail(Errno::EINVAL, "error decoding keyring: it holds no entity");
    }
    let changes = call.state.auth.keys().decide_import(&keyring).map_err(|error| failure(&error))?;
    for change in changes {
        call.state.auth.apply(change);
    }
    done("imported keyring")
}

fn add(call: &mut Call<'_>) -> Answer {
    let (name, mut caps) = (entity(call)?, wanted_caps(call)?);
    let mut key = None;
    if !call.data.is_empty() {
        let keyring = input_keyring(call)?;
        let Some(auth) = keyring.get(&name) else {
            return fail(Errno::ENOENT, format!("no key for {name} in supplied keyring"));
        };
        key = Some(auth.key.clone());
        if caps.is_empty() {
            caps = auth.caps.clone();
        }
    }
    let decided = call.state.auth.keys().decide_add(&name, key, &caps, call.wall, call.entropy);
    match decided {
        Ok(Some(change)) => {
            call.state.auth.apply(change);
            done(format!("added key for {name}"))
        }
        Ok(None) => done(format!("entity {name} already exists")),
        Err(AuthCommandError::CapsMismatch { .. }) => {
            fail(Errno::EINVAL, format!("entity {name} exists but caps do not match"))
        }
        Err(error) => Err(failure(&error)),
    }
}

/// Makes the entity when it is not there. Without caps an existing one is taken as it is.
fn ensure(call: &mut Call<'_>) -> Result<(AuthName, EntityAuth), Failure> {
    let (name, caps) = (entity(call)?, wanted_caps(call)?);
    let held = call.state.auth.keys().entity(&name).cloned();
    if let Some(auth) = held.filter(|_| caps.is_empty()) {
        return Ok((name, auth));
    }
    let decided = call.state.auth.keys().decide_get_or_create(&name, &caps, call.wall, call.entropy);
    if let Some(change) = decided.map_err(|error| failure(&error))? {
        call.state.auth.apply(change);
    }
    let auth = known(call, &name, format!("no key for {name}"))?;
    Ok((name, auth))
}

fn get_or_create(call: &mut Call<'_>) -> Answer {
    let (name, auth) = ensure(call)?;
    show_created(call, &name, &auth)
}

/// The keyring of an entity that a command has made or found.
pub(super) fn keyring_answer(call: &Call<'_>, name: &AuthName) -> Answer {
    let auth = known(call, name, format!("no key for {name}"))?;
    show_created(call, name, &auth)
}

fn show_created(call: &Call<'_>, name: &AuthName, auth: &EntityAuth) -> Answer {
    let plain = format!("[{name}]\n\tkey = {}\n", auth.key.to_text());
    call.either("auth_dump", plain, Node::array("auth_entities", [tree(name, auth)]))
}

fn get_or_create_key(call: &mut Call<'_>) -> Answer {
    let auth = ensure(call)?.1;
    show_created_key(call, &auth)
}

fn show_created_key(call: &Call<'_>, auth: &EntityAuth) -> Answer {
    let key = auth.key.to_text();
    call.either("auth", format!("{key}\n"), Section::new().with("key", key.as_str()))
}

fn caps(call: &mut Call<'_>) -> Answer {
    let (name, caps) = (entity(call)?, wanted_caps(call)?);
    let change = call.state.auth.keys().decide_caps(&name, &caps).map_err(|error| failure(&error))?;
    call.state.auth.apply(change);
    done(format!("updated caps for {name}"))
}

/// A new key, the same caps. Sessions that were opened with the old one end.
fn rotate(call: &mut Call<'_>) -> Answer {
    let name = entity(call)?;
    let held = known(call, &name, format!("there is no entity {name} whose key could be replaced"))?;
    let auth = EntityAuth { key: CryptoKey::generate(call.entropy, call.wall), caps: held.caps };
    call.state.auth.apply(AuthChange::Put(name.clone(), auth.clone()));
    show_rotated(call, &name, &auth)
}

fn show_rotated(call: &Call<'_>, name: &AuthName, auth: &EntityAuth) -> Answer {
    let output = one(call, name, auth)?;
    Ok(Output { text: format!("the key of {name} is another now"), ..output })
}

/// Shows the key that a command made which is not to run again, as its answer did.
pub(super) fn show_again(call: &mut Call<'_>, prefix: &str) -> Answer {
    let name = entity(call)?;
    let auth = known(call, &name, format!("this was done, but {name} has been removed since"))?;
    match prefix {
        "auth get-or-create" | "fs authorize" => show_created(call, &name, &auth),
        "auth get-or-create-key" => show_created_key(call, &auth),
        _ => show_rotated(call, &name, &auth),
    }
}

fn rm(call: &mut Call<'_>) -> Answer {
    let name = entity(call)?;
    if call.state.auth.keys().entity(&name).is_none() {
        return done(format!("entity {name} does not exist"));
    }
    call.state.auth.apply(AuthChange::Remove(name));
    done("updated")
}
