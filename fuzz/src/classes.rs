//! Calls of class methods on one object, with inputs that no client would send.

use crate::input::Input;
use nacre_buf::Bytes;
use nacre_cls::CLASSES;
use nacre_cls::testing::TestObject;

/// A script: first whether the object exists, then calls. Each is the number of a class, that of a method and the method's
/// input as a chunk. No input may panic, and none may make a method write more than an object may hold.
pub fn class_calls(input: &[u8]) {
    let mut input = Input::new(input);
    let mut object = if input.u8() == 0 { TestObject::default() } else { TestObject::existing() };
    while !input.is_empty() {
        let class = &CLASSES[usize::from(input.u8()) % CLASSES.len()];
        let method = &class.methods[usize::from(input.u8()) % class.methods.len()];
        drop(object.call(class.name, method.name, Bytes::copy_from_slice(input.chunk())));
    }
}

/// The script of [`class_calls`] that makes these calls: class, method, input. Unknown classes and methods are left out.
pub(crate) fn script<'a>(exists: bool, calls: impl Iterator<Item = (&'a str, &'a str, Vec<u8>)>) -> Vec<u8> {
    let mut out = vec![u8::from(exists)];
    for (class, method, input) in calls {
        let Some(class_at) = CLASSES.iter().position(|known| known.name == class) else { continue };
        let mut methods = CLASSES[class_at].methods.iter();
        let Some(method_at) = methods.position(|known| known.name == method) else { continue };
        let numbers = [class_at, method_at].map(|at| u8::try_from(at).expect("fewer than 256"));
        out.extend(numbers);
        out.extend(crate::seeds::chunk(&input));
    }
    out
}
