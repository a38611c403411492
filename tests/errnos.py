# SPDX-License-Identifier: BSD-2-Clause
"""Which errnos the functions of a C program return, for check_errnos.

Every function is interpreted with sets of errnos for values. A variable holds
the errnos that were assigned to it on the way there; branches are joined; a
comparison of a variable with an errno or with 0 restricts its set in each
branch. A call yields what the function called can return, also through pointers
in tables, fields and arguments. A field of a struct has one set for the whole
program, and so has a parameter whose value is kept somewhere; a parameter that
is returned is followed from each call by itself. Functions are interpreted when
somebody needs them, and again until nothing more is learnt.

What is left out: macros (but pn_likely() and the like), unions, arrays (all
elements are one), recursion of structs (all objects of a type are one). What
system calls and other libraries return (`-errno`), and what makes sets too
large, is in tests/errnos.table.

A value is a set of atoms: "EINVAL" is -EINVAL, "+EINVAL" is EINVAL, "?NAME" an
error of the system that the table does not know; a Param stands for what the
caller gives, a Function for its address.
"""

import collections
import errno as system
import re

# Built into other programs than the library.
LEFT_OUT = ("src/provider/", "src/hook/", "src/preload/")

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""", re.X | re.S | re.M)

TYPE_WORDS = {"struct", "enum", "union", "const", "volatile", "unsigned",
              "signed", "int", "char", "short", "long", "void", "float",
              "double", "bool", "_Bool", "_Atomic", "static", "extern",
              "inline", "register", "_Thread_local", "__thread", "typeof",
              "__typeof__", "restrict", "__restrict", "_Noreturn"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
LEVELS = [{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="},
          {"<", ">", "<=", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}]
LEVEL = {op: i for i, ops in enumerate(LEVELS) for op in ops}
LIKELY = {"pn_likely", "pn_unlikely"}
STORES = {"atomic_store", "atomic_store_explicit", "atomic_init",
          "__atomic_store_n", "pn_asymmetric_store"}
EXCHANGES = {"atomic_compare_exchange_strong", "atomic_compare_exchange_weak"}
LOADS = {"atomic_load", "atomic_load_explicit", "__atomic_load_n"}
ALIASES = {"ENOTSUP": "EOPNOTSUPP", "EWOULDBLOCK": "EAGAIN"}
ERRNOS = frozenset(name for name in dir(system) if name.isupper())
NOTHING = frozenset()


def tokens_of(text):
    """The tokens of a C source, without comments and preprocessor lines."""
    return [m.group() for m in TOKEN.finditer(text)
            if m.lastgroup != "skip"]


def is_name(token):
    return token[0].isalpha() or token[0] == "_"


def is_type_name(token):
    return token in TYPE_WORDS or token.endswith(("_t", "_fn"))


def matching(tokens, at):
    """The index behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i] in ("(", "{", "["):
            depth += 1
        elif tokens[i] in (")", "}", "]"):
            depth -= 1
            if not depth:
                return i + 1
    return len(tokens)


def split(tokens, mark):
    """Splits at marks outside all brackets."""
    parts, depth = [[]], 0
    for token in tokens:
        depth += (token in ("(", "{", "[")) - (token in (")", "}", "]"))
        if token == mark and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def declared(tokens):
    """(name, base type) of a declarator with its specifiers."""
    base, name, i = None, None, 0
    while i < len(tokens):
        token = tokens[i]
        if token in ("struct", "union", "enum") and i + 1 < len(tokens):
            base = tokens[i + 1]
            i += 2
            continue
        if token == "(" and tokens[i + 1:i + 2] == ["*"]:
            names = [t for t in tokens[i:matching(tokens, i)] if is_name(t)
                     and t not in TYPE_WORDS]
            return (names[0] if names else None), base
        if token in ("[", "(", "=", ":"):
            break
        if is_name(token) and token not in TYPE_WORDS and \
                not re.match(r"PN_|__", token):
            if base is None and (is_type_name(token) or i + 1 < len(tokens)
                                 and (tokens[i + 1] == "*"
                                      or is_name(tokens[i + 1]))):
                base = token
            else:
                name = token
        i += 1
    return name, base


class Function:
    """A function's definition. Parsed when it is first looked at."""

    def __init__(self, name, file, params, head, body):
        self.name, self.file, self.body = name, file, body
        self.static = "static" in head
        self.pointer = "*" in head
        self.type = declared(head + ["x"])[1]
        self.params = [declared(p) for p in params]
        self.index = {p[0]: i for i, p in enumerate(self.params)}
        self.words = None
        self._tree = None

    def tree(self):
        if self._tree is None:
            self._tree = Parser(self.body).block()
        return self._tree

    def mentions(self):
        if self.words is None:
            self.words = frozenset(self.body)
        return self.words


class Parser:
    """Statements and expressions of C, as nested tuples."""

    def __init__(self, tokens):
        self.t, self.i = tokens, 0

    def peek(self, ahead=0):
        at = self.i + ahead
        return self.t[at] if at < len(self.t) else ""

    def next(self):
        self.i += 1
        return self.t[self.i - 1]

    def take(self, token):
        if self.peek() == token:
            self.i += 1
            return True
        return False

    def block(self):
        self.take("{")
        out = []
        while self.i < len(self.t) and not self.take("}"):
            out.append(self.statement())
        return ("block", out)

    def in_parens(self):
        self.take("(")
        inner = self.expr()
        self.take(")")
        return inner

    def statement(self):
        token = self.peek()
        if token == "{":
            return self.block()
        method = getattr(self, "on_" + token, None) if is_name(token) else None
        if method:
            self.i += 1
            return method()
        if is_name(token) and self.peek(1) == ":" and token != "default":
            self.i += 2
            return ("label", token)
        if self.is_declaration():
            return self.declaration()
        if self.take(";"):
            return ("block", [])
        inner = self.expr()
        if self.take(";") or self.i >= len(self.t):
            return ("expr", inner)
        if self.peek() == "}":
            return ("expr", inner)
        # A macro that begins a loop.
        return ("while", inner, self.statement(), ("num",))

    def on_if(self):
        test, then = self.in_parens(), self.statement()
        return ("if", test, then,
                self.statement() if self.take("else") else ("block", []))

    def on_while(self):
        return ("while", self.in_parens(), self.statement(), ("num",))

    def on_do(self):
        body = self.statement()
        self.take("while")
        test = self.in_parens()
        self.take(";")
        return ("do", body, test)

    def on_for(self):
        self.take("(")
        first = self.statement()
        test = ("num",) if self.peek() == ";" else self.expr()
        self.take(";")
        step = ("num",) if self.peek() == ")" else self.expr()
        self.take(")")
        return ("block", [first, ("while", test, self.statement(), step)])

    def on_switch(self):
        return ("switch", self.in_parens(), self.statement())

    def on_case(self):
        label = self.ternary()
        if self.take("..."):
            self.ternary()
        self.take(":")
        return ("case", label)

    def on_default(self):
        self.take(":")
        return ("case", None)

    def on_goto(self):
        label = self.next()
        self.take(";")
        return ("goto", label)

    def on_break(self):
        self.take(";")
        return ("break",)

    def on_continue(self):
        self.take(";")
        return ("continue",)

    def on_return(self):
        inner = None if self.peek() == ";" else self.expr()
        self.take(";")
        return ("return", inner)

    def is_declaration(self):
        token = self.peek()
        if not is_name(token):
            return False
        if token in TYPE_WORDS:
            return True
        k = 1
        while self.peek(k) in ("*", "const"):
            k += 1
        return is_name(self.peek(k) or ".") and \
            self.peek(k + 1) in ("=", ";", ",", "[")

    def declaration(self):
        end = self.i
        while end < len(self.t) and self.t[end] != ";":
            end = matching(self.t, end) if self.t[end] in ("(", "{", "[") \
                else end + 1
        whole, self.i = self.t[self.i:end], end + 1
        out, specifiers = [], None
        for part in split(whole, ","):
            left, *right = split(part, "=")
            if specifiers is None:
                name, base = declared(left)
                specifiers = base
            else:
                name = declared(["int"] + left)[0]
            if name:
                value = Parser(right[0]).initial() if right else None
                out.append(("declare", name, specifiers, value))
        return ("block", out)

    def initial(self):
        return self.initialiser() if self.peek() == "{" else self.assignment()

    def initialiser(self):
        self.take("{")
        out = []
        while self.i < len(self.t) and not self.take("}"):
            field = None
            while self.peek() in (".", "["):
                if self.take("."):
                    field = self.next()
                else:
                    self.i = matching(self.t, self.i)
            self.take("=")
            out.append((field, self.initial()))
            self.take(",")
        return ("init", out)

    def expr(self):
        left = self.assignment()
        while self.take(","):
            left = ("comma", left, self.assignment())
        return left

    def assignment(self):
        left = self.ternary()
        if self.peek() in ASSIGN:
            op = self.next()
            return ("assign", op, left, self.initial())
        return left

    def ternary(self):
        test = self.binary(0)
        if not self.take("?"):
            return test
        if self.take(":"):
            return ("cond", test, test, self.ternary())
        then = self.expr()
        self.take(":")
        return ("cond", test, then, self.ternary())

    def binary(self, level):
        left = self.unary()
        while LEVEL.get(self.peek(), -1) >= level:
            op = self.next()
            left = ("bin", op, left, self.binary(LEVEL[op] + 1))
        return left

    def unary(self):
        token = self.peek()
        if token in ("-", "!", "~", "+", "*", "&", "++", "--"):
            self.i += 1
            return ("un", token, self.unary())
        if token in ("sizeof", "_Alignof", "__alignof__", "offsetof"):
            self.i += 1
            if self.peek() == "(":
                self.i = matching(self.t, self.i)
            else:
                self.unary()
            return ("num",)
        if token == "(" and self.is_cast():
            inside = self.t[self.i + 1:matching(self.t, self.i) - 1]
            self.i += len(inside) + 2
            base = declared(inside + ["x"])[1]
            if self.peek() == "{":
                return ("cast", base, self.postfix(self.initialiser()))
            return ("cast", base, self.unary())
        return self.postfix(self.primary())

    def is_cast(self):
        end = matching(self.t, self.i)
        inside = self.t[self.i + 1:end - 1]
        after = self.t[end] if end < len(self.t) else ""
        if not inside or not is_name(inside[0]):
            return False
        starts = after and (after in ("(", "{", "-", "~", "!", "&", "*") or
                            is_name(after) or after[0].isdigit() or
                            after[0] in "\"'.")
        if inside[0] in TYPE_WORDS:
            return True
        if not starts:
            return False
        if is_type_name(inside[0]) and all(t == "*" for t in inside[1:]):
            return True
        if inside[-1] == "*":
            return all(t == "*" or is_name(t) for t in inside)
        return len(inside) == 1 and (is_name(after) or after[0].isdigit())

    def primary(self):
        if self.peek() == "(":
            if self.peek(1) == "{":
                end = matching(self.t, self.i)
                inner = Parser(self.t[self.i + 1:end - 1]).block()
                self.i = end
                return ("statements", inner)
            return self.in_parens()
        token = self.next() if self.i < len(self.t) else ""
        if token and is_name(token):
            return ("id", token)
        if token and token[0] in "\"'":
            while self.peek()[:1] == '"':
                self.i += 1
        return ("num",)

    def argument(self):
        token = self.peek()
        if token in TYPE_WORDS:
            while self.peek() not in (",", ")", ""):
                self.i = matching(self.t, self.i) if self.peek() == "(" \
                    else self.i + 1
            return ("num",)
        return self.initial()

    def postfix(self, inner):
        while True:
            token = self.peek()
            if token == "(":
                self.i += 1
                args = []
                while self.i < len(self.t) and not self.take(")"):
                    args.append(self.argument())
                    if not self.take(",") and self.peek() != ")":
                        self.i += 1
                inner = ("call", inner, args)
            elif token == "[":
                self.i += 1
                inner = ("index", inner, self.expr())
                self.take("]")
            elif token in (".", "->"):
                self.i += 1
                inner = ("member", inner, self.next())
            elif token in ("++", "--"):
                self.i += 1
            else:
                return inner


class Program:
    """All functions, structs and tables of the sources."""

    def __init__(self, top):
        self.top = top
        self.functions = []
        self.named = collections.defaultdict(list)
        self.structs = {}
        self.globals = {}
        self.tables = []
        files = sorted(p for sub in ("src", "include")
                       for p in (top / sub).rglob("*.[ch]"))
        for path in files:
            name = str(path.relative_to(top))
            if not name.startswith(LEFT_OUT):
                self.read(name, tokens_of(path.read_text(encoding="utf-8")))
        self.mentioning = self.writers = None

    def read(self, file, tokens):
        """Cuts a file into what stands outside all functions."""
        i = start = 0
        while i < len(tokens):
            token = tokens[i]
            if token == "{":
                head = tokens[start:i]
                end = matching(tokens, i)
                if "=" not in head and "(" in head and head[0] != "typedef":
                    self.function(file, head, tokens[i:end])
                    start = end
                elif head[:2] == ["extern", '"C"']:
                    start = i + 1
                    end = i + 1
                i = end
                continue
            if token in ("(", "["):
                i = matching(tokens, i)
                continue
            if token == ";":
                self.outside(file, tokens[start:i])
                start = i + 1
            elif token == "}":
                start = i + 1
            i += 1

    def function(self, file, head, body):
        k = 0
        while k < len(head) and not (
                is_name(head[k]) and head[k + 1:k + 2] == ["("] and
                not re.match(r"PN_|__attribute__|PINION_API", head[k])):
            k = matching(head, k) if head[k] == "(" else k + 1
        if k >= len(head):
            return
        inside = head[k + 2:matching(head, k + 1) - 1]
        found = Function(head[k], file, split(inside, ","),
                         [t for t in head[:k] if not t.startswith("PN_")],
                         body)
        self.functions.append(found)
        self.named[found.name].append(found)

    def outside(self, file, tokens):
        """A struct's definition, or a variable with its first value."""
        for i, token in enumerate(tokens[:-2]):
            if token in ("struct", "union") and is_name(tokens[i + 1]) and \
                    tokens[i + 2] == "{":
                end = matching(tokens, i + 2)
                self.struct(tokens[i + 1], tokens[i + 3:end - 1])
        parts = split(tokens, "=")
        name, base = declared(parts[0])
        if base and name and "(" not in parts[0]:
            self.globals[(file, name)] = self.globals[name] = base
        if len(parts) == 2 and base:
            self.tables.append((file, base, parts[1]))

    def struct(self, name, tokens):
        fields = self.structs.setdefault(name, collections.OrderedDict())
        for part in split(tokens, ";"):
            if "{" in part:
                at = part.index("{")
                end = matching(part, at)
                if at > 1 and part[at - 2] in ("struct", "union"):
                    inner = part[at - 1]
                else:
                    inner = name
                    if end < len(part):
                        inner = name + "." + declared(
                            ["int"] + part[end:])[0]
                self.struct(inner, part[at + 1:end - 1])
                for declarator in split(part[end:], ","):
                    field = declared(["int"] + declarator)[0]
                    if field:
                        fields[field] = inner
                continue
            base = None
            for declarator in split(part, ","):
                if base is None:
                    field, base = declared(declarator)
                else:
                    field = declared(["int"] + declarator)[0]
                if field:
                    fields[field] = base

    def find(self, name, file):
        """The definitions that a name can mean in a file."""
        found = self.named.get(name)
        if not found:
            return ()
        own = [f for f in found if f.file == file]
        return own or [f for f in found
                       if not f.static or f.file.endswith(".h")]

    def assigning(self, field):
        """Functions that may assign to a field of that name."""
        if self.writers is None:
            self.writers = collections.defaultdict(list)
            for f in self.functions:
                for name in assigned_by(f):
                    self.writers[name].append(f)
        return self.writers.get(field, ())

    def users(self, word):
        """Functions in which a word occurs."""
        if self.mentioning is None:
            self.mentioning = collections.defaultdict(list)
            for f in self.functions:
                for token in f.mentions():
                    self.mentioning[token].append(f)
        return self.mentioning.get(word, ())


def names_of(what):
    """What the table may call a function or a field."""
    if isinstance(what, tuple):
        return (".".join(what),)
    folder = what.file.rsplit("/", 1)[0] + "/"
    return (f"{what.file}:{what.name}", what.name, what.file, folder)


class Exceptions:
    """tests/errnos.table."""

    def __init__(self, path):
        self.errno, self.absorbs = {}, {}
        self.absorbed = collections.defaultdict(frozenset)
        self.used = set()
        self.bad = []
        if not path.exists():
            return
        for n, line in enumerate(path.read_text(encoding="utf-8")
                                 .splitlines(), 1):
            words, _, reason = line.partition("--")
            if not words.strip() or words.startswith("#"):
                continue
            name, verb, *errnos = words.split()
            kind = {"errno": self.errno, "absorbs": self.absorbs}.get(verb)
            if kind is None or not reason.strip():
                self.bad.append(f"{path.name}:{n}: not understood: {line}")
                continue
            kind[name] = frozenset(errnos)

    def get(self, kind, function):
        for name in names_of(function):
            if name in kind:
                self.used.add((id(kind), name))
                return kind[name]
        return None

    def restrict(self, of, value):
        """A value without what the table says it is not."""
        errnos = self.get(self.absorbs, of)
        if errnos is None:
            return value
        either = errnos | {"+" + e for e in errnos}
        for name in names_of(of):
            self.absorbed[name] |= value & either
        return only(value, either, False)

    def unused(self):
        """What could be left out of the table."""
        out = [name for kind in (self.errno, self.absorbs)
               for name in kind if (id(kind), name) not in self.used]
        for name, errnos in self.absorbs.items():
            there = {atom.lstrip("+") for atom in self.absorbed[name]}
            if there and errnos - there:
                out.append(f"{name} ({' '.join(sorted(errnos - there))})")
        return out


class Summary:
    """What is known of a function: the values of its result, of what its
    parameters point to, and of errno."""

    def __init__(self):
        self.value, self.outs, self.errno = NOTHING, {}, NOTHING


class Param(collections.namedtuple("Param", "i negative only but")):
    """A parameter's value: of its errnos those in `only`, but not in `but`."""

    def of(self, value):
        kept = frozenset(a for a in value if not isinstance(a, str) or
                         (self.only is None or a in self.only) and
                         a not in self.but)
        return negated(kept) if self.negative else kept


def negated(value):
    """-value."""
    out = set()
    for atom in value:
        if isinstance(atom, Param):
            out.add(atom._replace(negative=not atom.negative))
        elif isinstance(atom, str):
            out.add(atom[1:] if atom[0] == "+" else "+" + atom)
    return frozenset(out)


def placed(value, argument):
    """A value with its parameters replaced by argument(i)."""
    if not any(isinstance(atom, Param) for atom in value):
        return value
    out = set()
    for atom in value:
        if isinstance(atom, Param):
            inner = argument(atom.i)
            plain = frozenset(a for a in inner if not isinstance(a, Param))
            out |= atom.of(plain)
            # A parameter of the caller, restricted as well.
            for a in inner - plain:
                only = a.only if atom.only is None else atom.only \
                    if a.only is None else a.only & atom.only
                out.add(Param(a.i, a.negative != atom.negative, only,
                              a.but | atom.but))
        else:
            out.add(atom)
    return frozenset(out)


def only(value, errnos, equal):
    """The part of a value that is one of these errnos, or is none."""
    out = set()
    for a in value:
        if isinstance(a, Param) and not a.negative:
            out.add(a._replace(only=errnos if a.only is None
                               else a.only & errnos) if equal
                    else a._replace(but=a.but | errnos))
        elif not isinstance(a, str) or (a in errnos) == equal:
            out.add(a)
    return frozenset(out)


def join(a, b):
    """What holds after either of two states; None: that is not reached. What
    one of them does not know of a field is what the field can be at all."""
    if a is None or a is b:
        return b
    if b is None:
        return a
    out = {}
    for path in a.keys() | b.keys():
        if path in a and path in b or "." not in path:
            out[path] = a.get(path, NOTHING) | b.get(path, NOTHING)
    return out


class Analysis:
    """Interprets functions until nothing more is learnt."""

    def __init__(self, program, exceptions):
        self.program, self.exceptions = program, exceptions
        self.summary = {}
        self.fields = collections.defaultdict(frozenset)
        self.params = collections.defaultdict(frozenset)
        self.readers = collections.defaultdict(set)
        self.wanted_fields, self.wanted_params = set(), set()
        self.queue, self.queued = collections.deque(), set()
        self.predicates = {}
        self.flows = collections.defaultdict(set)
        self.writers = collections.defaultdict(dict)
        for file, base, tokens in program.tables:
            self.first_values(file, base, Parser(tokens).initial())

    def first_values(self, file, base, value):
        """What the initialiser of a variable puts into fields."""
        fields = self.program.structs.get(base, {})
        order = list(fields)
        for i, (field, inner) in enumerate(
                value[1] if value[0] == "init" else ()):
            if inner[0] == "init" and not field:  # an element of an array
                self.first_values(file, base, inner)
                continue
            field = field or (order[i] if i < len(order) else "?")
            if inner[0] == "init":
                self.first_values(file, fields.get(field), inner)
            else:
                self.fields[(base, field)] |= self.constant(file, inner)

    def constant(self, file, node):
        while node[0] == "cast" or node[:2] == ("un", "&"):
            node = node[2]
        if node[0] == "id":
            return frozenset(self.program.find(node[1], file))
        if node[:2] == ("un", "-") and node[2][0] == "id" and \
                node[2][1] in ERRNOS:
            return frozenset([node[2][1]])
        return NOTHING

    def demand(self, function):
        if function not in self.summary:
            self.summary[function] = Summary()
            self.again(function)
        return self.summary[function]

    def again(self, function):
        if function not in self.queued:
            self.queued.add(function)
            self.queue.append(function)

    def wake(self, key):
        for reader in self.readers[key]:
            self.again(reader)

    def solve(self):
        while self.queue:
            function = self.queue.popleft()
            self.queued.discard(function)
            new = Interpreter(self, function).run()
            old = self.summary[function]
            if (new.value, new.outs, new.errno) != \
                    (old.value, old.outs, old.errno):
                self.summary[function] = new
                self.wake(function)

    def read_field(self, reader, key):
        self.flows[reader].add(key)
        self.readers[key].add(reader)
        if key not in self.wanted_fields:
            self.wanted_fields.add(key)
            for writer in self.program.assigning(key[1]):
                self.demand(writer)
        return self.fields[key] | \
            (self.exceptions.get(self.exceptions.errno, key) or NOTHING)

    def write_field(self, writer, key, value):
        value = self.exceptions.restrict(key, self.concrete(writer, value))
        if not value <= self.fields[key]:
            for atom in value - self.fields[key]:
                self.writers[key][atom] = writer
            self.fields[key] |= value
            self.wake(key)

    def concrete(self, function, value):
        """A value with parameters replaced by what callers give."""
        return placed(value, lambda i: self.param(function, function, i))

    def known(self, source):
        """What a function, a field or a parameter can be."""
        if isinstance(source, Function):
            summary = self.summary[source]
            return summary.value.union(*summary.outs.values())
        if isinstance(source[0], Function):
            return self.params[source]
        return self.fields[source]

    def param(self, reader, function, i):
        key = (function, i)
        self.flows[reader].add(key)
        self.readers[key].add(reader)
        if function not in self.wanted_params:
            self.wanted_params.add(function)
            for user in self.program.users(function.name):
                self.demand(user)
        return self.params[key]

    def pass_params(self, caller, function, args):
        for i, value in enumerate(args):
            value = self.concrete(caller, value) \
                if function in self.wanted_params else \
                frozenset(a for a in value if not isinstance(a, Param))
            if not value <= self.params[(function, i)]:
                for atom in value - self.params[(function, i)]:
                    self.writers[(function, i)][atom] = caller
                self.params[(function, i)] |= value
                self.wake((function, i))


def assigned_by(function):
    """The fields that a function assigns to, or passes on where they are."""
    body, out = function.body, set()
    for i in range(2, len(body) - 1):
        if body[i - 1] not in (".", "->"):
            continue
        field = body[i]
        at = i
        while body[at - 1] in (".", "->") or is_name(body[at - 1]):
            at -= 1
        if body[i + 1] in ("=", "[") or body[at - 1] == "&":
            out.add(field)
    return out


def substituted(node, names):
    """An expression with names replaced by expressions."""
    if isinstance(node, tuple):
        if node[:1] == ("id",):
            return names.get(node[1], node)
        return tuple(substituted(inner, names) for inner in node)
    if isinstance(node, list):
        return [substituted(inner, names) for inner in node]
    return node


class Interpreter:
    """One function, with what is known of the others."""

    def __init__(self, analysis, function):
        self.a, self.f = analysis, function
        self.types = {name: base for name, base in function.params if name}
        self.labels = {}
        self.out = Summary()
        self.loops = []
        self.locals = set(self.types)

    def run(self):
        first = {name: frozenset([Param(i, False, None, NOTHING)])
                 for name, i in self.f.index.items() if name}
        table = self.a.exceptions
        for _ in range(4):
            before = {k: dict(v) for k, v in self.labels.items()}
            self.loops = []
            state = self.statement(self.f.tree(), dict(first))
            self.leave(state)
            if before == self.labels:
                break
        self.out.value = table.restrict(self.f, self.out.value)
        self.out.errno = table.restrict(self.f, self.out.errno)
        self.out.outs = {i: table.restrict(self.f, value)
                         for i, value in self.out.outs.items()}
        return self.out

    def leave(self, state):
        if state is None:
            return
        for path, value in state.items():
            if path[0] == "*" and path[1:] in self.f.index:
                i = self.f.index[path[1:]]
                self.out.outs[i] = self.out.outs.get(i, NOTHING) | value

    # --- statements ---------------------------------------------------------

    def statement(self, node, state):
        if state is None and node[0] not in ("label", "block", "case",
                                             "switch", "if", "while", "do"):
            return None
        return getattr(self, "do_" + node[0])(node, state)

    def do_block(self, node, state):
        for inner in node[1]:
            state = self.statement(inner, state)
        return state

    def do_expr(self, node, state):
        self.value(node[1], state)
        return state

    def do_declare(self, node, state):
        _, name, base, first = node
        self.locals.add(name)
        if base:
            self.types[name] = base
        if first is None:
            state[name] = NOTHING
        elif first[0] == "init":
            self.fill(name, base, first, state)
        else:
            state[name] = self.value(first, state)
        return state

    def fill(self, path, base, first, state):
        for field, inner in first[1]:
            value = self.value(inner, state)
            if field and value:
                if path:
                    state[f"{path}.{field}"] = value
                if base:
                    self.a.write_field(self.f, (base, field), value)

    def do_if(self, node, state):
        if state is None:
            self.statement(node[2], None)
            return self.statement(node[3], None)
        yes = self.assume(node[1], True, dict(state))
        no = self.assume(node[1], False, dict(state))
        return join(self.statement(node[2], yes), self.statement(node[3], no))

    def do_while(self, node, state):
        _, test, body, step = node
        after = None
        for _ in range(6):
            here = dict(state) if state is not None else None
            no = self.assume(test, False, dict(here)) if here is not None \
                else None
            yes = self.assume(test, True, here) if here is not None else None
            self.loops.append([None, None])
            end = self.statement(body, yes)
            leaving, going_on = self.loops.pop()
            end = join(end, going_on)
            if end is not None:
                self.value(step, end)
            if test == ("num",):
                no = None
            after = join(after, join(no, leaving))
            wider = join(state, end)
            if wider == state:
                break
            state = wider
        return after

    def do_do(self, node, state):
        _, body, test = node
        after = None
        for _ in range(6):
            self.loops.append([None, None])
            end = self.statement(body, dict(state) if state is not None
                                 else None)
            leaving, going_on = self.loops.pop()
            end = join(end, going_on)
            no = self.assume(test, False, dict(end)) if end is not None \
                else None
            yes = self.assume(test, True, dict(end)) if end is not None \
                else None
            after = join(after, join(no, leaving))
            wider = join(state, yes)
            if wider == state:
                break
            state = wider
        return after

    def do_switch(self, node, state):
        if state is None:
            return None
        self.value(node[1], state)
        labels = [n[1] for n in node[2][1] if n[0] == "case"]
        path = self.path(node[1])
        self.loops.append([None, None])
        here = None
        for inner in node[2][1]:
            if inner[0] != "case":
                here = self.statement(inner, here)
                continue
            entry = dict(state)
            if path and inner[1] is not None:
                entry = self.compare(node[1], inner[1], True, entry)
            elif path:
                for label in labels:
                    if label is not None and entry is not None:
                        entry = self.compare(node[1], label, False, entry)
            here = join(here, entry)
        leaving, going_on = self.loops.pop()
        if going_on is not None and self.loops:
            self.loops[-1][1] = join(self.loops[-1][1], going_on)
        if None not in labels:
            here = join(here, state)
        return join(here, leaving)

    def do_case(self, _, state):
        return state

    def do_label(self, node, state):
        return join(state, self.labels.get(node[1]))

    def do_goto(self, node, state):
        self.labels[node[1]] = join(self.labels.get(node[1]), state)

    def do_break(self, _, state):
        if self.loops:
            self.loops[-1][0] = join(self.loops[-1][0], state)

    def do_continue(self, _, state):
        if self.loops:
            self.loops[-1][1] = join(self.loops[-1][1], state)

    def do_return(self, node, state):
        if node[1] is not None:
            self.out.value |= self.value(node[1], state)
        self.leave(state)

    # --- conditions ---------------------------------------------------------

    def assume(self, test, truth, state):
        """The state where a test has that outcome; None: never."""
        kind = test[0]
        if kind == "un" and test[1] == "!":
            return self.assume(test[2], not truth, state)
        if kind == "call" and test[1][0] == "id" and test[1][1] in LIKELY:
            return self.assume(test[2][0], truth, state)
        if kind == "bin" and test[1] in ("&&", "||"):
            first = self.assume(test[2], test[1] == "&&", dict(state))
            other = self.assume(test[2], test[1] != "&&", state)
            if first is not None:
                first = self.assume(test[3], truth, first)
            if truth == (test[1] == "&&"):
                return first
            return join(first, other)
        if kind == "bin" and test[1] in ("==", "!="):
            return self.compare(test[2], test[3], truth == (test[1] == "=="),
                                state)
        if kind == "bin" and test[1] in ("<", ">", "<=", ">="):
            self.value(test[2], state)
            self.value(test[3], state)
            below = (test[1][0] == "<") == truth
            if test[3] == ("num",) and not below:
                self.set_errnos(test[2], state, lambda errnos: NOTHING)
            return state
        known = self.a.predicates
        if id(test) not in known:
            known[id(test)] = (test, self.predicate(test))
        inside = known[id(test)][1]
        if inside:
            return self.assume(inside, truth, state)
        self.value(test, state)
        while test[0] == "assign":
            test = test[2]
        if not truth:
            self.set_errnos(test, state, lambda errnos: NOTHING)
        return state

    def predicate(self, test):
        """What a function that consists of one return says of arguments."""
        if test[0] != "call" or test[1][0] != "id":
            return None
        found = self.a.program.find(test[1][1], self.f.file)
        if len(found) != 1 or len(found[0].body) > 60:
            return None
        body = found[0].tree()[1]
        if len(body) != 1 or body[0][0] != "return" or \
                body[0][1] is None or len(test[2]) < len(found[0].params):
            return None
        names = {p[0]: arg for p, arg in zip(found[0].params, test[2])}
        return substituted(body[0][1], names)

    def set_errnos(self, node, state, change):
        """Changes the errnos that a variable can be; other atoms stay."""
        while node[0] == "assign":
            node = node[2]
        path = self.path(node)
        if not path:
            return
        value = self.load(node, path, state)
        kept = frozenset(a for a in value if isinstance(a, Function))
        state[path] = kept | change(value)

    def compare(self, left, right, equal, state):
        """A variable was compared with an errno, or with 0."""
        self.value(left, state)
        what = self.value(right, state)
        errnos = frozenset(a for a in what if isinstance(a, str))
        if right == ("num",) or not errnos and right[0] == "id" and \
                right[1] in ("NULL", "false"):
            if equal:
                self.set_errnos(left, state, lambda old: NOTHING)
        elif len(errnos) == 1 and right[0] in ("un", "id"):
            self.set_errnos(left, state,
                            lambda old: only(old, errnos, equal))
        return state

    # --- expressions --------------------------------------------------------

    def path(self, node):
        kind = node[0]
        if kind == "id":
            return node[1]
        if kind == "member":
            inner = self.path(node[1])
            return inner and f"{inner}.{node[2]}"
        if kind == "index":
            inner = self.path(node[1])
            return inner and inner + "[]"
        if kind == "un" and node[1] == "*":
            inner = self.path(node[2])
            return inner and "*" + inner
        if kind == "un" and node[1] == "&":
            return self.path(node[2])
        if kind == "cast":
            return self.path(node[2])
        return None

    def type(self, node):
        kind = node[0]
        if kind == "id":
            name = node[1]
            return self.types.get(name) or \
                self.a.program.globals.get((self.f.file, name)) or \
                self.a.program.globals.get(name)
        if kind == "member":
            outer = self.type(node[1])
            fields = self.a.program.structs.get(outer, {})
            return fields.get(node[2])
        if kind in ("index", "assign"):
            return self.type(node[1 if kind == "index" else 2])
        if kind == "un":
            return self.type(node[2])
        if kind == "cond":
            return self.type(node[2]) or self.type(node[3])
        if kind == "cast":
            return node[1]
        if kind == "call" and node[1][0] == "id":
            if node[1][1] == "pn_container_of":
                return None
            for f in self.a.program.find(node[1][1], self.f.file):
                return f.type
        return None

    def key(self, node):
        return (self.type(node[1]) or "?", node[2])

    def load(self, node, path, state):
        if path in state:
            return state[path]
        if node[0] == "member":
            return self.a.read_field(self.f, self.key(node))
        return self.of_id(node, state) if node[0] == "id" else NOTHING

    def value(self, node, state):
        if state is None:
            return NOTHING
        return getattr(self, "of_" + node[0])(node, state)

    def of_num(self, _node, _state):
        return NOTHING

    def of_id(self, node, state):
        name = node[1]
        if name in state:
            return state[name]
        if name == "errno":
            return self.system_errors()
        if name in self.locals:
            return NOTHING
        if name in ERRNOS:
            return frozenset(["+" + ALIASES.get(name, name)])
        return frozenset(self.a.program.find(name, self.f.file))

    def system_errors(self):
        """What errno, or a function of another library, can be here."""
        table = self.a.exceptions
        known = table.get(table.errno, self.f)
        if known is None:
            return frozenset([f"+?{self.f.file}:{self.f.name}"])
        return frozenset("+" + e for e in known)

    def of_member(self, node, state):
        self.value(node[1], state)
        path = self.path(node)
        return self.load(node, path, state)

    def of_index(self, node, state):
        self.value(node[2], state)
        return self.value(node[1], state)

    def of_un(self, node, state):
        inner = self.value(node[2], state)
        if node[1] == "-":
            return negated(inner)
        if node[1] == "*":
            path = self.path(node)
            if path in state:
                return state[path]
            return frozenset(a for a in inner if isinstance(a, Function))
        if node[1] == "&":
            return frozenset(a for a in inner if isinstance(a, Function))
        return NOTHING

    def of_bin(self, node, state):
        if node[1] in ("&&", "||"):
            truth = node[1] == "&&"
            inner = self.assume(node[2], truth, dict(state))
            if inner is not None:
                self.value(node[3], inner)
                state.update(join(state, inner))
            return NOTHING
        self.value(node[2], state)
        self.value(node[3], state)
        return NOTHING

    def of_cond(self, node, state):
        yes = self.assume(node[1], True, dict(state))
        no = self.assume(node[1], False, dict(state))
        out = self.value(node[2], yes) | self.value(node[3], no)
        both = join(yes, no)
        state.clear()
        state.update(both or {})
        return out

    def of_assign(self, node, state):
        _, op, left, right = node
        if right[0] == "init" or right[0] == "cast" and right[2][0] == "init":
            first = right if right[0] == "init" else right[2]
            self.fill(self.path(left), self.type(left), first, state)
            return NOTHING
        value = self.value(right, state)
        if op != "=":
            return NOTHING
        while left[0] == "cast":
            left = left[2]
        if left[0] == "cond":
            return value
        path = self.path(left)
        if path == "errno":
            self.out.errno |= value
        if path:
            inside = [p for p in state if p.startswith(path + ".")]
            for p in inside:
                del state[p]
            state[path] = value
        if left[0] == "member":
            self.value(left[1], state)
            self.a.write_field(self.f, self.key(left), value)
        return value

    def of_comma(self, node, state):
        self.value(node[1], state)
        return self.value(node[2], state)

    def of_cast(self, node, state):
        if node[2][0] == "init":
            self.fill(None, node[1], node[2], state)
            return NOTHING
        return self.value(node[2], state)

    def of_init(self, node, state):
        for _, inner in node[1]:
            self.value(inner, state)
        return NOTHING

    def of_statements(self, node, state):
        out = NOTHING
        for inner in node[1][1]:
            if inner[0] == "expr":
                out = self.value(inner[1], state)
            else:
                end = self.statement(inner, state)
                if end is not None and end is not state:
                    state.update(end)
        return out

    def of_store(self, where, value, state):
        """A function that stores a value where a pointer points to."""
        target = where[2] if where[:2] == ("un", "&") else ("un", "*", where)
        return self.of_assign(("assign", "=", target, value), state)

    def of_call(self, node, state):
        _, callee, args = node
        if callee[0] == "id" and callee[1] in STORES and len(args) > 1:
            return self.of_store(args[0], args[1], state)
        if callee[0] == "id" and callee[1] in EXCHANGES and len(args) > 2:
            self.of_store(args[0], args[2], state)
            return NOTHING
        if callee[0] == "id" and callee[1] in LOADS:
            return self.value(args[0][2] if args[0][:2] == ("un", "&")
                              else args[0], state)
        if callee[0] == "id" and callee[1] in LIKELY and args:
            return self.value(args[0], state)
        targets = self.value(callee, state)
        values = [self.value(arg, state) for arg in args]
        functions = {a for a in targets if isinstance(a, Function)}
        for a in targets:
            if isinstance(a, Param):
                functions |= {x for x in self.a.param(self.f, self.f, a.i)
                              if isinstance(x, Function)}
        out = NOTHING
        if callee[0] == "id" and callee[1].islower() and not targets and \
                callee[1] not in self.locals:
            return self.system_errors()

        def given(i):
            return values[i] if i < len(values) else NOTHING

        for function in functions:
            summary = self.a.demand(function)
            self.a.readers[function].add(self.f)
            self.a.flows[self.f].add(function)
            self.a.pass_params(self.f, function, values)
            out |= placed(summary.value, given)
            self.out.errno |= placed(summary.errno, given)
            for i, value in summary.outs.items():
                if i < len(args):
                    self.store_out(args[i], placed(value, given), state)
        return out

    def store_out(self, arg, value, state):
        while arg[0] == "cast":
            arg = arg[2]
        if arg[:2] == ("un", "&"):
            target = arg[2]
            path = self.path(target)
            if path:
                state[path] = state.get(path, NOTHING) | value
            if target[0] == "member":
                self.a.write_field(self.f, self.key(target), value)
        else:
            path = self.path(arg)
            if path:
                path = "*" + path
                state[path] = state.get(path, NOTHING) | value


def why(analysis, starts, errno):
    """A way by which an errno comes to functions or fields."""
    queue = collections.deque((start, None) for start in starts)
    came = {}
    while queue:
        node, parent = queue.popleft()
        if node in came:
            continue
        came[node] = parent
        if not isinstance(node, Function):
            writer = analysis.writers[node].get(errno)
            if writer:
                queue.append((writer, node))
            continue
        if origin(analysis, node, errno):
            return chain(came, node)
        for source in analysis.flows[node]:
            if errno in analysis.known(source):
                queue.append((source, node))
    return "no way found"


def origin(analysis, function, errno):
    """Whether an errno is named in a function, or comes from the system."""
    table = analysis.exceptions
    listed = errno in (table.get(table.errno, function) or ())
    text = " ".join(function.body)
    return errno == f"?{function.file}:{function.name}" or \
        re.search(rf"- {errno}\b", text) or \
        listed and re.search(r"- (errno|ret|[a-z_]+ \()", text)


def chain(came, node):
    out = []
    while node is not None:
        if isinstance(node, Function):
            out.append(f"{node.file}:{node.name}()")
        elif isinstance(node[0], Function):
            out.append(f"argument {node[1]} of {node[0].name}()")
        else:
            out.append(f"{node[0]}.{node[1]}")
        node = came[node]
    return " > ".join(out)
