"""Workloads that tell their own identity: each attachment runs a block with a tag of its own, whose lines are those of
this tag only, and which calls routines of this tag only, each from a line of its own. So does any sample of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

ROUTINES = 'PFTR'  # procedure, function, trigger, recursive procedure


def _padded(tag: int, head: str, body: list[str]) -> tuple[str, dict[str, int]]:
    """The text, and where in it the lines marked "--NAME" are. The body of each tag begins at a line of its own."""
    lines = [head, *[''] * (20 * tag), *body]
    marks = {line.rpartition('--')[2]: number for number, line in enumerate(lines, 1) if '--' in line}
    return '\n'.join(line.partition('--')[0] for line in lines), marks


def _spin(rounds: int) -> list[str]:
    return ['begin --begin', f'  while (i < {rounds}) do --loop', '    i = i + 1; --step', '  n = n + 1; --last']


@dataclasses.dataclass
class Identity:
    tag: int
    rounds: int = 2000
    work: int = 1  # so much more in each routine; by itself a few microseconds

    def __post_init__(self):
        tag = self.tag
        self.ddl: list[str] = [f'create table tab{tag} (n integer)']
        self.lines: dict[str, set[int]] = {}
        declare = 'declare i integer = 0;'
        self._add('F', f'create or alter function f{tag}(n integer) returns integer as {declare}',
                  [*_spin(3 * self.work), '  return n; --end', 'end'])
        self._add('P', f'create or alter procedure p{tag}(n integer) returns (m integer) as {declare}',
                  [*_spin(40 * self.work), '  m = n; --end', 'end'])
        self._add('T', f'create or alter trigger t{tag} for tab{tag} before insert as {declare} declare n integer = 0;',
                  [*_spin(20 * self.work), 'end'])
        recursive = self._add('R', f'create or alter procedure r{tag}(n integer) returns (m integer) as {declare}',
                              [*_spin(5 * self.work), f'  if (n < 20) then --if', f'    execute procedure r{tag}(n) returning_values m;--call',
                               'end'])
        self.block, marks = _padded(tag, f'execute block as /* tag {tag} */ {declare} declare n integer = 0;', [
            'begin --begin', f'  while (i < {self.rounds}) do --loop', '  begin --inner', '    i = i + 1; --step',
            f'    execute procedure p{tag}(i) returning_values n; --P', f'    n = f{tag}(n); --F',
            f'    insert into tab{tag} values (:i); --T', f'    if (mod(i, 20) = 0) then --if',
            f'      execute procedure r{tag}(0) returning_values n; --R',
            '  end', f'  delete from tab{tag}; --delete',
            "  if (rdb$get_context('USER_SESSION', 'FAIL') is not null) then --failing?", '    n = 1 / (i - i); --fail', 'end'])
        self.lines['block'] = {0, 1, *marks.values()}
        # From where each may be called.
        self.calls = {f'{letter}{tag}': {('block', marks[letter])} for letter in ROUTINES}
        self.calls[f'R{tag}'].add((f'R{tag}', recursive['call']))

    def _add(self, letter: str, head: str, body: list[str]) -> dict[str, int]:
        text, marks = _padded(self.tag, head, body)
        self.ddl.append(text)
        self.lines[f'{letter}{self.tag}'] = {0, 1, *marks.values()}
        return marks

    def setup_script(self) -> str:
        return 'set term ^ ;\n' + ''.join(f'{text}^\ncommit^\n' for text in self.ddl) + 'set term ; ^\n'

    def work_script(self, times: int) -> str:
        return 'set term ^ ;\n' + f'{self.block}^\ncommit^\n' * times


@dataclasses.dataclass
class Seen:
    """What fbprof-positions printed."""

    positions: list[tuple[int, str, list[tuple[int, int, int]]]]  # count, attachment, frames
    statements: dict[int, tuple[str, str, str]]                   # kind, name, text
    totals: dict[str, float]


def parse(text: str) -> Seen:
    seen = Seen([], {}, {})
    for line in text.splitlines():
        words = line.split('\t')
        if words[0] == 'statement':
            seen.statements[int(words[1])] = tuple(words[2:5])
        elif line.startswith('torn'):
            pairs = line.split()
            seen.totals = {name: float(value) for name, value in zip(pairs[::2], pairs[1::2])}
        elif line != 'looking':
            frames = [tuple(map(int, word.split(':'))) for word in words[2:]]
            seen.positions.append((int(words[0]), words[1], frames))
    return seen


def _tag_of(kind: str, name: str, text: str) -> tuple[int, str] | None:
    if name and name[0] in ROUTINES and name[1:].isdigit():
        return int(name[1:]), name
    if text.startswith('execute block as /* tag '):
        return int(text.split()[5]), 'block'
    return None


def check(seen: Seen, identities: list[Identity]) -> Counter:
    """Nothing that contradicts itself; how many samples each tag has, and how many 'rootless': between two
    instructions at the beginning and end of a call, the engine itself doesn't know the caller."""
    known = {identity.tag: identity for identity in identities}
    owners: dict[str, int] = {}
    samples: Counter = Counter()
    for count, attachment, frames in seen.positions:
        caller = None

        def context(count=count, attachment=attachment, frames=frames):
            return f'{frames} of {attachment}, {count} times: { {number: seen.statements[number] for number, _, _ in frames} }'

        for depth, (number, line, _) in enumerate(frames):
            what = _tag_of(*seen.statements[number])
            if what is None:
                caller = None
                continue
            tag, name = what
            assert owners.setdefault(attachment, tag) == tag, f'attachment of tag {owners[attachment]}: {context()}'
            assert line in known[tag].lines[name], context()
            if depth == 0 and name != 'block':
                samples['rootless'] += count
            elif caller is not None:
                assert caller in known[tag].calls.get(name, ()), f'called from {caller}: {context()}'
            if depth == 0:
                samples[tag] += count
            caller = (name, line)
    return samples
