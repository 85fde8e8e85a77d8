# SPDX-License-Identifier: MIT
"""Evaluates AMD's instruction pseudo-code, the independent statement that the virtual device is tested against.

The text is parsed by a small Pratt parser into closures over an environment, one evaluation per lane. Values carry
their type, because the language does: ``S0.u32`` is a view, ``32'U(x)`` a conversion, ``tmp[15 : 0].f16 = x`` writes
sixteen bits.
"""

import functools
import re
from collections.abc import Callable

from . import number_formats as nf
from .pseudo_code_values import (
    CONSTANTS,
    FUNCTIONS,
    VIEW,
    Environment,
    Unusable,
    Value,
    binary,
    boolean,
    cast,
    convert_float,
    convert_named,
    floating,
    infinity_of,
    nan_of,
    negate,
    parse_type,
    round_to,
    view,
    with_bits,
)

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
  |(?P<cast>\d+'[UIFB])(?![\w.])
  |(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)U?)
  |(?P<hex>0x[0-9a-fA-F]+(?:ULL|LL|U)?)
  |(?P<float>\d+\.\d+F?)
  |(?P<int>\d+(?:ULL|LL|U)?)
  |(?P<name>[A-Za-z_]\w*)
  |(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|\+=|-=|\+:|&&|\|\||[-+*/%&|^~!?:=<>(){}\[\].,;])""",
    re.VERBOSE,
)
_KEYWORDS = {"then", "do", "endif", "else", "elsif", "endfor", "endwhile"}
_BINARY = [  # loosest first
    {"||"},
    {"&&"},
    {"|"},
    {"^"},
    {"&"},
    {"==", "!=", "<>"},
    {"<", ">", "<=", ">="},
    {"<<", ">>"},
    {"+", "-"},
    {"*", "/", "%"},
    {"**"},
]


class _Return(Exception):
    pass


class _Break(Exception):
    pass


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise Unusable(f"unexpected text {text[position : position + 20]!r}")
        if match.lastgroup:
            tokens.append((match.lastgroup, match.group()))
        position = match.end()
    return [*tokens, ("end", "")]


class Node:
    """An expression: ``get`` evaluates it; ``put`` writes ``width`` bits at ``offset`` where it can be assigned."""

    def __init__(
        self,
        get: Callable,
        put: Callable | None = None,
        type_name: str | None = None,
        name: str | None = None,
    ):
        self.get, self.put, self.type_name, self.name = get, put, type_name, name


def _insert(value: Value, offset: int, width: int, raw: int) -> Value:
    mask = ((1 << width) - 1) << offset
    return Value(value.raw & ~mask | raw << offset & mask, max(value.width, offset + width), value.kind, value.fmt)


def _literal(kind: str, text: str) -> Value:
    if kind == "hex":
        digits = text.rstrip("UL")
        return Value(int(digits, 16), 64 if "LL" in text else 32, "b")
    if kind == "float":
        return floating(
            nf.bits_of(float(text.rstrip("F")), nf.F32 if text[-1] == "F" else nf.F64),
            nf.F32 if text[-1] == "F" else nf.F64,
        )
    if kind == "int":
        return Value(int(text.rstrip("UL")), 64 if "LL" in text else 32, "u" if "U" in text else "i")
    width, digits = text.split("'")
    width = int(width)
    if "." in digits:
        fmt = nf.FORMATS[f"f{width}"]
        return floating(nf.bits_of(float(digits), fmt), fmt)
    if digits.startswith("0x"):
        return Value(int(digits.rstrip("U"), 16), width, "b")
    return Value(int(digits.rstrip("U")), width, "u" if digits[-1] == "U" else "i")


class _Parser:
    def __init__(self, text: str):
        self.tokens, self.at = _tokens(text), 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def take(self, expected: str | None = None) -> tuple[str, str]:
        token = self.tokens[self.at]
        if expected is not None and token[1] != expected:
            raise Unusable(f"expected {expected!r}, found {token[1]!r}")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    # statements

    def block(self, *ends: str) -> Callable:
        statements = []
        while self.peek() not in ends and self.tokens[self.at][0] != "end":
            if not self.accept(";"):
                statements.append(self.statement())
        if "" not in ends and self.peek() not in ends:
            raise Unusable(f"missing {' or '.join(ends)}")

        def run(env):
            for statement in statements:
                statement(env)

        return run

    def statement(self) -> Callable:
        word = self.peek()
        if word in ("if", "for", "while", "declare", "break", "return"):
            self.at += 1
            return getattr(self, f"_{word}")()
        if word in _KEYWORDS:
            raise Unusable(f"unexpected {word}")
        target = self.expression()
        op = self.peek()
        if op not in ("=", "+=", "-="):
            return target.get
        self.at += 1
        if op == "=" and self.peek() == "lambda":
            return self._lambda(target.name)
        value = self.expression()
        if op != "=":
            get = value.get
            value = Node(lambda env: binary(env, op[0], target.get(env), get(env)))
        return self._assignment(target, value)

    def _assignment(self, target: Node, value: Node) -> Callable:
        if target.put is None:
            raise Unusable("not assignable")

        def run(env):
            result = value.get(env)
            if target.name is not None:
                name = target.name
                if name in env.registers:
                    env.names[name] = _insert(env.names[name], 0, result.width, result.raw)
                else:
                    env.names[name] = result
                return
            if target.type_name is not None:
                kind, width, fmt = parse_type(target.type_name)
                if kind == "f" and result.kind in "fr" and result.fmt is not fmt:
                    result = convert_float(env, result, fmt)
                elif kind == "f" and result.kind in "ui" and result.width != width:
                    result = round_to(env, result.exact, fmt)
                raw = result.number if result.kind in "ui" else result.raw
                target.put(env, 0, width, raw & ((1 << width) - 1))
                return
            target.put(env, 0, None, result.number if result.kind in "ui" else result.raw)

        return run

    def _if(self) -> Callable:
        arms = []
        otherwise = None
        condition = self.expression()
        self.take("then")
        while True:
            arms.append((condition.get, self.block("elsif", "else", "endif")))
            _, word = self.take()
            if word == "elsif":
                condition = self.expression()
                self.take("then")
                continue
            if word == "else":
                otherwise = self.block("endif")
                self.take("endif")
            break

        def run(env):
            for test, body in arms:
                if test(env):
                    body(env)
                    return
            if otherwise:
                otherwise(env)

        return run

    def _for(self) -> Callable:
        _, name = self.take()
        self.take("in")
        first = self.binary_level(0)
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.block("endfor")
        self.take("endfor")

        def run(env):
            start = first.get(env)
            for i in range(start.number, last.get(env).number + 1):
                env.names[name] = Value(i, max(start.width, 32), start.kind)
                try:
                    body(env)
                except _Break:
                    break

        return run

    def _while(self) -> Callable:
        condition = self.expression()
        self.take("do")
        body = self.block("endwhile")
        self.take("endwhile")

        def run(env):
            while condition.get(env):
                body(env)

        return run

    def _declare(self) -> Callable:
        _, name = self.take()
        self.take(":")
        kind, text = self.take()
        width, letter = text.split("'")
        count = 0
        if self.accept("["):
            count = int(self.take()[1])
            self.take("]")
        fmt = nf.FORMATS[f"f{width}"] if letter == "F" else None

        def run(env):
            if name in env.names and count == 0:
                return
            empty = Value(0, int(width), letter.lower(), fmt)
            if name == "S":  # the mixed-precision instructions name their operands as an array
                env.names[name] = [env.names[f"S{i}"] for i in range(count)]
            else:
                env.names[name] = [empty] * count if count else empty

        return run

    def _break(self) -> Callable:
        def run(env):
            raise _Break

        return run

    def _return(self) -> Callable:
        value = self.expression()

        def run(env):
            raise _Return(value.get(env))

        return run

    def _lambda(self, name: str) -> Callable:
        self.take("lambda")
        self.take("(")
        parameters = [self.take()[1]]
        while self.accept(","):
            parameters.append(self.take()[1])
        self.take(")")
        self.take("(")
        if self.peek() in ("if", "declare", "for"):
            body = self.block(")")
        else:
            value = self.expression()
            self.accept(";")

            def body(env):
                raise _Return(value.get(env))

        self.take(")")

        def function(env, *arguments):
            inner = Environment({}, env.names, env.mode)
            inner.names.update(zip(parameters, arguments, strict=True))
            try:
                body(inner)
            except _Return as returned:
                return returned.args[0]
            raise Unusable(f"{name} returns nothing")

        def run(env):
            env.names[name] = function

        return run

    # expressions

    def expression(self) -> Node:
        condition = self.binary_level(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.take(":")
        no = self.expression()
        return Node(lambda env: yes.get(env) if condition.get(env) else no.get(env))

    def binary_level(self, level: int) -> Node:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary_level(level + 1)
        while self.peek() in _BINARY[level]:
            op = self.take()[1]
            right = self.binary_level(level + 1)
            left = self._binary_node(op, left, right)
        return left

    @staticmethod
    def _binary_node(op: str, left: Node, right: Node) -> Node:
        return Node(lambda env: binary(env, op, left.get(env), right.get(env)))

    def unary(self) -> Node:
        op = self.peek()
        if op not in ("-", "+", "~", "!"):
            return self.postfix()
        self.at += 1
        operand = self.unary()
        if op == "+":
            return operand
        if op == "-":
            return Node(lambda env: negate(operand.get(env)))
        if op == "!":
            return Node(lambda env: boolean(not operand.get(env)))

        def complement(env):
            value = operand.get(env)
            return with_bits(value, ~value.raw)

        return Node(complement)

    def postfix(self) -> Node:
        node = self.primary()
        while True:
            if self.accept("."):
                node = self._member(node, self.take()[1])
            elif self.accept("["):
                node = self._index(node)
            else:
                return node

    @staticmethod
    def _member(base: Node, name: str) -> Node:
        if not VIEW.match(name):
            # Status bits such as TRAPSTS.INVALID are not modelled: they read as 0 and take no effect.
            return Node(lambda env: boolean(False), lambda env, offset, width, raw: None, "u1")
        kind, width, fmt = parse_type(name)

        def get(env):
            value = base.get(env)
            if value.kind == "f" and kind == "f" and value.fmt is not fmt:
                return infinity_of(value.negative, fmt) if value.is_infinite else nan_of(fmt)
            if value.kind == "denormal":
                return Value(0, 0, "denormal", fmt)
            return Value(value.raw, width, kind, fmt)

        def put(env, offset, bits, raw):
            base.put(env, offset, width if bits is None else bits, raw)

        return Node(get, put if base.put else None, name)

    def _index(self, base: Node) -> Node:
        high = self.expression()
        low = count = None
        if self.accept(":"):
            low = self.expression()
        elif self.accept("+:"):
            count = self.expression()
        self.take("]")
        if low is None and count is None:
            return self._element(base, high)

        def bounds(env):
            first = high.get(env).number
            if low is not None:
                return first, low.get(env).number
            return first + count.get(env).number - 1, first

        def get(env):
            top, bottom = bounds(env)
            value = base.get(env)
            if top < bottom:  # [0 : 31] reverses the bits
                width = bottom - top + 1
                field = value.raw >> top & ((1 << width) - 1)
                return Value(int(f"{field:0{width}b}"[::-1], 2), width, "u")
            return Value(value.raw >> bottom, top - bottom + 1, "u")

        def put(env, offset, width, raw):
            top, bottom = bounds(env)
            base.put(env, offset + bottom, top - bottom + 1 if width is None else width, raw)

        return Node(get, put if base.put else None)

    @staticmethod
    def _element(base: Node, index: Node) -> Node:
        def get(env):
            container, i = base.get(env), index.get(env).number
            if isinstance(container, Value):
                return Value(container.raw >> i, 1, "u")
            return container[i]

        def put(env, offset, width, raw):
            i = index.get(env).number
            container = env.names.get(base.name) if base.name else base.get(env)
            if isinstance(container, Value) or container is None:
                base.put(env, offset + i, 1 if width is None else width, raw & 1)
            else:
                old = container[i]
                container[i] = _insert(old, offset, old.width if width is None else width, raw)

        return Node(get, put)

    def primary(self) -> Node:
        kind, text = self.take()
        if kind == "cast":
            width, letter = text.split("'")
            self.take("(")
            operand = self.expression()
            self.take(")")
            return Node(lambda env: cast(env, int(width), letter, operand.get(env)))
        if kind in ("hex", "float", "int", "sized"):
            value = _literal(kind, text)
            return Node(lambda env: value)
        if text == "(":
            node = self.expression()
            self.take(")")
            return Node(node.get)
        if text == "{":
            return self._concatenation()
        if kind != "name" or text in _KEYWORDS:
            raise Unusable(f"unexpected {text!r}")
        if self.peek() == "(":
            return self._call(text)
        return self._name(text)

    @staticmethod
    def _name(name: str) -> Node:
        if name == "DENORM":
            return Node(lambda env: Value(0, 0, "denormal"))

        def get(env):
            if name in env.names:
                return env.names[name]
            if name in CONSTANTS:
                return CONSTANTS[name]
            raise Unusable(f"unknown name {name}")

        def put(env, offset, width, raw):
            old = env.names.get(name) or Value(0, 0, "u")
            env.names[name] = _insert(old, offset, old.width if width is None else width, raw)

        return Node(get, put, None, name)

    def _call(self, name: str) -> Node:
        self.take("(")
        arguments = []
        while not self.accept(")"):
            arguments.append(self.expression().get)
            self.accept(",")
        convert = re.match(r"(\w+?)_to_(\w+)$", name)

        def get(env):
            values = [argument(env) for argument in arguments]
            if name in env.names:
                return env.names[name](env, *values)
            if name in FUNCTIONS:
                return FUNCTIONS[name](env, *values)
            if convert:
                return convert_named(env, *convert.groups(), values[0])
            if name.startswith("v_"):
                return call_instruction(env, name, values)
            raise Unusable(f"unknown function {name}")

        return Node(get)

    def _concatenation(self) -> Node:
        parts = [self.expression()]
        while self.accept(","):
            parts.append(self.expression())
        self.take("}")

        def get(env):
            raw = width = 0
            for part in parts:
                value = part.get(env)
                raw, width = raw << value.width | value.raw, width + value.width
            return Value(raw, width, "u")

        def put(env, offset, width, raw):
            for part in reversed(parts):
                bits = parse_type(part.type_name)[1]
                part.put(env, 0, bits, raw & ((1 << bits) - 1))
                raw >>= bits

        return Node(get, put)


@functools.cache
def parse(text: str) -> Callable[[Environment], None]:
    """Compiles pseudo-code into a function that runs it on an environment. Raises Unusable."""
    return _Parser(text).block("")


def call_instruction(env: Environment, name: str, arguments: list[Value]) -> Value:
    """One instruction used as a function by another, for example ``v_max_i32(a, b)``."""
    from .amd_pseudo_code import text_of_instruction

    registers = {f"S{i}": value for i, value in enumerate(arguments)}
    registers["D0"] = Value(0, 64, "u")
    inner = Environment(registers, {}, env.mode)
    parse(text_of_instruction(name.upper()))(inner)
    # The type of the result is in the name, except for the u8 sums, which are 32 bits wide.
    suffix = name.rsplit("_", 1)[1]
    return view(inner.names["D0"], "u32" if suffix == "u8" else suffix)
