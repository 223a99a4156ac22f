//! Splits a script into words and operators. Nothing is expanded here.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    Operator(&'static str),
    Newline,
    End,
}

/// A word as the script has it, with its quotes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word {
    pub(super) raw: String,
    pub(super) line: usize,
}

/// The text behind `<<`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HereDocument {
    pub(super) text: String,
    /// Whether expansions in the text are left as they are.
    pub(super) quoted: bool,
}

/// The text isn't a script, or is nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyntaxError;

const OPERATORS: &[&str] = &[
    "<<<", "<<-", ";;&", "&>>", "&&", "||", ";;", ";&", "|&", "<<", ">>", "<&", ">&", "<>", ">|", "&>", ";",
    "&", "|", "<", ">", "(", ")",
];
const MAX_DEPTH: usize = 40;

#[derive(Debug)]
pub(super) struct Lexer<'s> {
    text: &'s str,
    position: usize,
    pub(super) line: usize,
    depth: usize,
    /// Delimiters of here-documents that begin behind the next line break.
    pending: Vec<(String, bool, bool)>,
    pub(super) documents: Vec<HereDocument>,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self { text, position: 0, line: 1, depth: 0, pending: Vec::new(), documents: Vec::new() }
    }

    fn rest(&self) -> &'s str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
                while self.advance() != Some('\n') {}
            } else if rest.starts_with([' ', '\t', '\r']) {
                self.advance();
            } else if rest.starts_with('#') {
                self.position += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    /// The next token. `in_test` is inside `[[ ]]`, where `<`, `>` and parentheses are words.
    pub(super) fn next(&mut self, in_test: bool) -> Result<Token, SyntaxError> {
        self.skip_blanks();
        let Some(c) = self.peek() else { return Ok(Token::End) };
        if c == '\n' {
            self.advance();
            self.read_documents();
            return Ok(Token::Newline);
        }
        let rest = self.rest();
        let substitutes = rest.starts_with("<(") || rest.starts_with(">(");
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        if let Some(operator) = operator
            && !substitutes
        {
            self.position += operator.len();
            if in_test && !matches!(*operator, "&&" | "||") {
                return Ok(Token::Word(Word { raw: (*operator).to_owned(), line: self.line }));
            }
            return Ok(Token::Operator(operator));
        }
        self.word().map(Token::Word)
    }

    fn word(&mut self) -> Result<Word, SyntaxError> {
        let (start, line) = (self.position, self.line);
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | ')' => break,
                '<' | '>' => {
                    let word = &self.text[start..self.position];
                    if !self.rest()[1..].starts_with('(') || !word.is_empty() {
                        break;
                    }
                    self.position += 2;
                    self.skip_parentheses()?;
                }
                '(' => {
                    let word = &self.text[start..self.position];
                    // An array. Otherwise it is the definition of a function.
                    if !word.ends_with('=') {
                        break;
                    }
                    self.position += 1;
                    self.skip_parentheses()?;
                }
                _ => self.skip_part()?,
            }
        }
        let raw = &self.text[start..self.position];
        // A number directly before a redirection names a file descriptor.
        if raw.is_empty() {
            return Err(SyntaxError);
        }
        if self.rest().starts_with(['<', '>']) && raw.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Word { raw: String::new(), line });
        }
        Ok(Word { raw: raw.to_owned(), line })
    }

    /// Skips one character, or what is quoted or expanded together.
    fn skip_part(&mut self) -> Result<(), SyntaxError> {
        let rest = self.rest();
        match rest.chars().next() {
            Some('\\') => {
                self.advance();
                self.advance();
            }
            Some('\'') => self.skip_past('\'')?,
            Some('"') => self.skip_double_quotes()?,
            Some('`') => self.skip_past('`')?,
            Some('$') if rest.starts_with("$'") => self.skip_dollar_quotes()?,
            Some('$') if rest.starts_with("$(") => {
                self.position += 2;
                self.skip_parentheses()?;
            }
            Some('$') if rest.starts_with("${") => {
                self.position += 2;
                self.skip_braces()?;
            }
            _ => {
                self.advance();
            }
        }
        Ok(())
    }

    fn skip_past(&mut self, quote: char) -> Result<(), SyntaxError> {
        self.advance();
        loop {
            match self.advance().ok_or(SyntaxError)? {
                c if c == quote => return Ok(()),
                '\\' if quote == '`' => {
                    self.advance();
                }
                _ => {}
            }
        }
    }

    /// `$'…'`, in which a backslash escapes the quote.
    fn skip_dollar_quotes(&mut self) -> Result<(), SyntaxError> {
        self.position += 2;
        loop {
            match self.advance().ok_or(SyntaxError)? {
                '\'' => return Ok(()),
                '\\' => {
                    self.advance();
                }
                _ => {}
            }
        }
    }

    fn skip_double_quotes(&mut self) -> Result<(), SyntaxError> {
        self.nested(|lexer| {
            lexer.advance();
            loop {
                match lexer.peek().ok_or(SyntaxError)? {
                    '"' => {
                        lexer.advance();
                        return Ok(());
                    }
                    '\\' | '`' => lexer.skip_part()?,
                    '$' if !lexer.rest().starts_with("$'") => lexer.skip_part()?,
                    _ => {
                        lexer.advance();
                    }
                }
            }
        })
    }

    fn skip_braces(&mut self) -> Result<(), SyntaxError> {
        self.nested(|lexer| {
            loop {
                match lexer.peek().ok_or(SyntaxError)? {
                    '}' => {
                        lexer.advance();
                        return Ok(());
                    }
                    _ => lexer.skip_part()?,
                }
            }
        })
    }

    /// Skips to behind the parenthesis that closes one that has been read.
    fn skip_parentheses(&mut self) -> Result<(), SyntaxError> {
        self.nested(|lexer| {
            let mut open = 1_usize;
            let mut at_word_start = true;
            loop {
                let c = lexer.peek().ok_or(SyntaxError)?;
                match c {
                    '(' => open += 1,
                    ')' => open -= 1,
                    '#' if at_word_start => {
                        lexer.position += lexer.rest().find('\n').unwrap_or(lexer.rest().len());
                        continue;
                    }
                    _ => {}
                }
                at_word_start = c.is_ascii_whitespace() || matches!(c, ';' | '(' | '&' | '|');
                if matches!(c, '(' | ')') {
                    lexer.advance();
                } else {
                    lexer.skip_part()?;
                }
                if open == 0 {
                    return Ok(());
                }
            }
        })
    }

    fn nested(&mut self, skip: impl FnOnce(&mut Self) -> Result<(), SyntaxError>) -> Result<(), SyntaxError> {
        if self.depth == MAX_DEPTH {
            return Err(SyntaxError);
        }
        self.depth += 1;
        let skipped = skip(self);
        self.depth -= 1;
        skipped
    }

    /// The text up to the parentheses that close `((`, which have been read.
    pub(super) fn arithmetic(&mut self) -> Result<String, SyntaxError> {
        let start = self.position;
        self.skip_parentheses()?;
        let inner = &self.text[start..self.position - 1];
        self.skip_blanks();
        if self.advance() != Some(')') {
            return Err(SyntaxError);
        }
        Ok(inner.to_owned())
    }

    /// Whether the next character is `c`, which is skipped then.
    pub(super) fn skip_if(&mut self, c: char) -> bool {
        let is = self.peek() == Some(c);
        if is {
            self.advance();
        }
        is
    }

    /// Announces a here-document; its index.
    pub(super) fn expect_document(&mut self, delimiter: &str, strips_tabs: bool) -> usize {
        let quoted = delimiter.contains(['\'', '"', '\\']);
        let plain = delimiter.replace(['\'', '"', '\\'], "");
        self.pending.push((plain, strips_tabs, quoted));
        self.documents.len() + self.pending.len() - 1
    }

    fn read_documents(&mut self) {
        for (delimiter, strips_tabs, quoted) in std::mem::take(&mut self.pending) {
            let mut text = String::new();
            while !self.rest().is_empty() {
                let line = self.rest().split_inclusive('\n').next().unwrap_or_default();
                self.position += line.len();
                self.line += 1;
                let line = if strips_tabs { line.trim_start_matches('\t') } else { line };
                if line.trim_end_matches(['\n', '\r']) == delimiter {
                    break;
                }
                text.push_str(line);
            }
            self.documents.push(HereDocument { text, quoted });
        }
    }
}

/// The length of the quoted or expanded part with which `text` begins.
pub(super) fn part_length(text: &str) -> usize {
    let mut lexer = Lexer::new(text);
    if lexer.skip_part().is_err() { text.len() } else { lexer.position }
}

/// Whether `text` can be the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
