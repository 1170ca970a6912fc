/** CodeMirror for YAML. It lives in a shadow root: there it needs no `<style>`, which the page forbids. */

import {
  type Completion,
  type CompletionContext,
  type CompletionResult,
  autocompletion,
  closeBrackets,
  completionKeymap,
} from '@codemirror/autocomplete';
import {
  history,
  historyKeymap,
  moveLineDown,
  moveLineUp,
  standardKeymap,
  toggleLineComment,
} from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, lintGutter, setDiagnostics } from '@codemirror/lint';
import { MergeView } from '@codemirror/merge';
import { EditorState, type Extension } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { ALGORITHM_NAMES, type AlgorithmName, paramsOf } from './algorithms.ts';
import { POLICY_FIELDS } from './document.ts';

/** Something that the server phrases about a place, from line 1 and column 1. */
export interface Mark {
  line: number;
  column: number;
  message: string;
  severity: 'error' | 'warning';
}

const look = EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'var(--bg)', fontSize: '13px', height: '100%' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
  '.cm-content': { caretColor: 'var(--ink)', padding: '8px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--ink-2)', border: 'none' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in srgb, var(--accent) 6%, transparent)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': {
    backgroundColor: 'color-mix(in srgb, var(--accent) 24%, transparent) !important',
  },
  '.cm-tooltip': {
    backgroundColor: 'var(--raised)',
    color: 'var(--ink)',
    border: '1px solid var(--line)',
    borderRadius: 'var(--radius)',
  },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-ink)' },
  '.cm-diagnostic': { fontFamily: 'var(--text)' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--refused)' },
  '.cm-diagnostic-warning': { borderLeftColor: 'var(--held)' },
  '.cm-changedLine': { backgroundColor: 'color-mix(in srgb, var(--accent) 8%, transparent) !important' },
  '.cm-changedText': { background: 'color-mix(in srgb, var(--accent) 22%, transparent) !important' },
  '.cm-collapsedLines': { background: 'var(--surface)', color: 'var(--ink-2)' },
  // Few fonts have their glyphs.
  '.cm-collapsedLines::before, .cm-collapsedLines::after': { display: 'none' },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: [tags.comment, tags.meta], color: 'var(--ink-2)', fontStyle: 'italic' },
  { tag: tags.invalid, color: 'var(--refused)' },
]);

/** The shortcuts of `defaultKeymap` that a short text also needs; the others are 2 kB. */
const LINES = [
  { key: 'Mod-/', run: toggleLineComment },
  { key: 'Alt-ArrowUp', run: moveLineUp },
  { key: 'Alt-ArrowDown', run: moveLineDown },
];

export interface Editor {
  /** Replaces the text as one step of the history. */
  setText: (text: string) => void;
  mark: (marks: Mark[]) => void;
  focus: (line?: number) => void;
  destroy: () => void;
}

export function createEditor(host: HTMLElement, text: string, label: string, ontext: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  let isOurs = false;
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        common(label),
        history(),
        drawSelection(),
        highlightActiveLine(),
        closeBrackets(),
        lintGutter(),
        autocompletion({ override: [complete], icons: false }),
        keymap.of([...completionKeymap, ...LINES, ...standardKeymap, ...historyKeymap]),
        EditorView.domEventHandlers({ beforeinput: replaceSelection }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !isOurs) ontext(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setText(next) {
      const was = view.state.doc.toString();
      if (was === next) return;
      isOurs = true;
      view.dispatch({ changes: changed(was, next) });
      isOurs = false;
    },
    mark(marks) {
      const { doc } = view.state;
      const found = marks.map(({ line, column, message, severity }): Diagnostic => {
        const at = doc.line(Math.min(Math.max(line, 1), doc.lines));
        const from = Math.min(at.from + Math.max(column - 1, 0), at.to);
        return { from, to: at.to, severity, message };
      });
      view.dispatch(setDiagnostics(view.state, found));
    },
    focus(line) {
      if (line !== undefined) {
        const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
        view.dispatch({ selection: { anchor: at.from }, scrollIntoView: true });
      }
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}

/** Browsers give text that replaces a selection the style of what it replaces, inline, which the page forbids. */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== 'insertText' || event.data === null || view.state.selection.main.empty) return false;
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: 'input.type', scrollIntoView: true });
  event.preventDefault();
  return true;
}

/** Two texts beside each other; unchanged parts are folded. */
export function createComparison(
  host: HTMLElement,
  left: [label: string, text: string],
  right: [label: string, text: string],
  folded: string,
): () => void {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const phrases = EditorState.phrases.of({ '$ unchanged lines': folded });
  const side = ([label, doc]: [string, string]) => ({
    doc,
    extensions: [common(label), phrases, EditorState.readOnly.of(true)],
  });
  const view = new MergeView({
    parent: root,
    root,
    a: side(left),
    b: side(right),
    gutter: false,
    collapseUnchanged: { margin: 2, minSize: 6 },
  });
  return () => view.destroy();
}

function common(label: string): Extension {
  return [
    lineNumbers(),
    yaml(),
    syntaxHighlighting(colours),
    look,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ 'aria-label': label }),
  ];
}

/** The part between the first and the last difference, so that the cursor stays where it is. */
function changed(was: string, next: string): { from: number; to: number; insert: string } {
  let start = 0;
  while (start < was.length && was[start] === next[start]) start += 1;
  let end = 0;
  const most = Math.min(was.length, next.length) - start;
  while (end < most && was[was.length - 1 - end] === next[next.length - 1 - end]) end += 1;
  return { from: start, to: was.length - end, insert: next.slice(start, next.length - end) };
}

const WORDS: Record<string, readonly string[]> = {
  carry: ['usage', 'proportional', 'reset'],
  on_store_failure: ['local', 'allow', 'deny'],
  on_key_quota: ['share', 'deny'],
  on_overload: ['refuse'],
  leases: ['auto', 'off'],
  overflow: ['reject', 'shadow'],
  refill: ['smooth', 'interval'],
  align: ['epoch', 'first'],
  calendar: ['day', 'week', 'month', 'year'],
  delay: ['all', 'none'],
};

/** Completes fields by what stands before them on the line, and words of fields that have them. */
function complete(context: CompletionContext): CompletionResult | null {
  const word = context.matchBefore(/[A-Za-z_]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const before = context.state.doc
    .lineAt(context.pos)
    .text.slice(0, word.from - context.state.doc.lineAt(context.pos).from);
  const field = /([a-z_]+):\s*$/.exec(before)?.[1];
  if (field)
    return result(
      word.from,
      (WORDS[field] ?? []).map((label) => ({ label })),
    );
  const algorithm = /([a-z_]+):\s*\{[^}]*$/.exec(before)?.[1];
  if (algorithm && isAlgorithm(algorithm))
    return result(word.from, fields(paramsOf(algorithm).map(({ name }) => name)));
  if (/^\s*$/.test(before))
    return result(word.from, fields(before === '' ? POLICY_FIELDS : [...ALGORITHM_NAMES, ...fieldsAbove(context)]));
  if (/^\s*-\s+$/.test(before)) return result(word.from, fields(['name', 'key', ...ALGORITHM_NAMES]));
  return null;
}

/** Parameters of the algorithm that the lines above are about. */
function fieldsAbove(context: CompletionContext): string[] {
  const { doc } = context.state;
  for (let line = doc.lineAt(context.pos).number - 1; line >= 1; line -= 1) {
    const name = /^\s*-?\s*([a-z_]+):\s*$/.exec(doc.line(line).text)?.[1];
    if (name && isAlgorithm(name)) return paramsOf(name).map((param) => param.name);
    if (name) return [];
  }
  return [];
}

const isAlgorithm = (name: string): name is AlgorithmName => (ALGORITHM_NAMES as string[]).includes(name);
const fields = (names: readonly string[]): Completion[] => names.map((label) => ({ label, apply: `${label}: ` }));
const result = (from: number, options: Completion[]): CompletionResult => ({ from, options });
