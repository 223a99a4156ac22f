//! Makes commands of the words of a script.

use std::rc::Rc;

use super::lexer::{HereDocument, Lexer, SyntaxError, Token, Word};
use super::tree::{AndOr, Command, Kind, List, Pipeline, Redirect, assignment, visit};

/// A script, up to the first line that can't be read.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) commands: List,
    /// The line that can't be read.
    pub(super) error: Option<usize>,
}

pub(super) fn parse(text: &str) -> Script {
    let mut parser = Parser { lexer: Lexer::new(text), ahead: None, depth: 0 };
    let mut script = Script::default();
    loop {
        match parser.and_or_or_end() {
            Ok(Some(item)) => script.commands.push(item),
            Ok(None) => break,
            Err(SyntaxError) => {
                script.error = Some(parser.lexer.line);
                break;
            }
        }
    }
    parser.attach_documents(&mut script.commands);
    script
}

const MAX_DEPTH: usize = 40;

struct Parser<'s> {
    lexer: Lexer<'s>,
    ahead: Option<Token>,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Result<&Token, SyntaxError> {
        let token = match self.ahead.take() {
            Some(token) => token,
            None => self.lexer.next(false)?,
        };
        Ok(self.ahead.insert(token))
    }

    fn next(&mut self) -> Result<Token, SyntaxError> {
        self.peek()?;
        Ok(self.ahead.take().unwrap_or(Token::End))
    }

    fn skip_newlines(&mut self) -> Result<(), SyntaxError> {
        while *self.peek()? == Token::Newline {
            self.ahead = None;
        }
        Ok(())
    }

    fn at_operator(&mut self, operator: &str) -> Result<bool, SyntaxError> {
        Ok(matches!(self.peek()?, Token::Operator(found) if *found == operator))
    }

    fn skip_operator(&mut self, operator: &str) -> Result<bool, SyntaxError> {
        let is = self.at_operator(operator)?;
        if is {
            self.ahead = None;
        }
        Ok(is)
    }

    fn at_word(&mut self, text: &str) -> Result<bool, SyntaxError> {
        Ok(matches!(self.peek()?, Token::Word(word) if word.raw == text))
    }

    fn skip_word(&mut self, text: &str) -> Result<bool, SyntaxError> {
        let is = self.at_word(text)?;
        if is {
            self.ahead = None;
        }
        Ok(is)
    }

    fn expect_word(&mut self, text: &str) -> Result<(), SyntaxError> {
        self.skip_newlines()?;
        self.skip_word(text)?.then_some(()).ok_or(SyntaxError)
    }

    fn and_or_or_end(&mut self) -> Result<Option<AndOr>, SyntaxError> {
        loop {
            match self.peek()? {
                Token::End => return Ok(None),
                Token::Newline | Token::Operator(";") => self.ahead = None,
                _ => return self.and_or().map(Some),
            }
        }
    }

    fn and_or(&mut self) -> Result<AndOr, SyntaxError> {
        let mut item = AndOr { first: self.pipeline()?, ..AndOr::default() };
        loop {
            let wanted = if self.skip_operator("&&")? {
                true
            } else if self.skip_operator("||")? {
                false
            } else {
                break;
            };
            self.skip_newlines()?;
            item.rest.push((wanted, self.pipeline()?));
        }
        item.background = self.skip_operator("&")?;
        if !item.background {
            self.skip_operator(";")?;
        }
        Ok(item)
    }

    fn pipeline(&mut self) -> Result<Pipeline, SyntaxError> {
        let mut pipeline = Pipeline::default();
        while self.skip_word("!")? {
            pipeline.negated = !pipeline.negated;
        }
        loop {
            pipeline.commands.push(self.command()?);
            if !self.skip_operator("|")? && !self.skip_operator("|&")? {
                return Ok(pipeline);
            }
            self.skip_newlines()?;
        }
    }

    /// Commands up to one of `ends`, which is read as well.
    fn list(&mut self, ends: &[&str]) -> Result<(List, String), SyntaxError> {
        let mut list = List::new();
        loop {
            let end = match self.peek()? {
                Token::End => return Err(SyntaxError),
                Token::Newline | Token::Operator(";") => {
                    self.ahead = None;
                    continue;
                }
                Token::Operator(operator) => ends.iter().find(|end| *end == operator),
                Token::Word(word) => ends.iter().find(|end| **end == word.raw),
            };
            if let Some(end) = end {
                self.ahead = None;
                return Ok((list, (*end).to_owned()));
            }
            list.push(self.and_or()?);
        }
    }

    fn command(&mut self) -> Result<Command, SyntaxError> {
        if self.depth == MAX_DEPTH {
            return Err(SyntaxError);
        }
        self.depth += 1;
        let command = self.command_at_depth();
        self.depth -= 1;
        command
    }

    fn command_at_depth(&mut self) -> Result<Command, SyntaxError> {
        let line = self.lexer.line;
        let kind = match self.peek()?.clone() {
            Token::Operator("(") => {
                self.ahead = None;
                if self.lexer.skip_if('(') {
                    Kind::Arithmetic(self.lexer.arithmetic()?)
                } else {
                    Kind::Subshell(self.list(&[")"])?.0)
                }
            }
            Token::Word(word) => match self.compound(&word.raw)? {
                Some(kind) => kind,
                None => return self.simple(line),
            },
            Token::Operator(operator) if operator.contains(['<', '>']) => return self.simple(line),
            _ => return Err(SyntaxError),
        };
        let mut redirects = Vec::new();
        while let Some(redirect) = self.redirect()? {
            redirects.push(redirect);
        }
        Ok(Command { line, kind, redirects })
    }

    fn compound(&mut self, word: &str) -> Result<Option<Kind>, SyntaxError> {
        if !matches!(word, "{" | "if" | "while" | "until" | "for" | "select" | "case" | "function" | "[[") {
            return Ok(None);
        }
        self.ahead = None;
        Ok(Some(match word {
            "{" => Kind::Group(self.list(&["}"])?.0),
            "if" => self.conditional()?,
            "while" | "until" => {
                let condition = self.list(&["do"])?.0;
                Kind::While { wanted: word == "while", condition, body: self.list(&["done"])?.0 }
            }
            "for" | "select" => self.for_loop()?,
            "case" => self.case()?,
            "function" => {
                let Token::Word(name) = self.next()? else { return Err(SyntaxError) };
                if self.skip_operator("(")? && !self.skip_operator(")")? {
                    return Err(SyntaxError);
                }
                self.function(name.raw)?
            }
            _ => self.test()?,
        }))
    }

    fn conditional(&mut self) -> Result<Kind, SyntaxError> {
        let mut arms = Vec::new();
        loop {
            let condition = self.list(&["then"])?.0;
            let (body, end) = self.list(&["elif", "else", "fi"])?;
            arms.push((condition, body));
            match end.as_str() {
                "elif" => {}
                "else" => return Ok(Kind::If(arms, self.list(&["fi"])?.0)),
                _ => return Ok(Kind::If(arms, List::new())),
            }
        }
    }

    fn for_loop(&mut self) -> Result<Kind, SyntaxError> {
        if self.skip_operator("(")? {
            // `for ((…))`: how often it runs isn't read.
            if !self.lexer.skip_if('(') {
                return Err(SyntaxError);
            }
            let header = self.lexer.arithmetic()?;
            self.skip_operator(";")?;
            let name = header.split('=').next().unwrap_or_default().trim().to_owned();
            let body = self.body()?;
            let word = Word { raw: "$((UNKNOWN_COUNT))".to_owned(), line: self.lexer.line };
            return Ok(Kind::For { name, words: Some(vec![word]), body });
        }
        let Token::Word(name) = self.next()? else { return Err(SyntaxError) };
        self.skip_newlines()?;
        let words = if self.skip_word("in")? {
            let mut words = Vec::new();
            while let Token::Word(word) = self.peek()?.clone() {
                self.ahead = None;
                words.push(word);
            }
            Some(words)
        } else {
            None
        };
        self.skip_operator(";")?;
        Ok(Kind::For { name: name.raw, words, body: self.body()? })
    }

    fn body(&mut self) -> Result<List, SyntaxError> {
        self.skip_newlines()?;
        if self.skip_word("{")? {
            return Ok(self.list(&["}"])?.0);
        }
        self.expect_word("do")?;
        Ok(self.list(&["done"])?.0)
    }

    fn case(&mut self) -> Result<Kind, SyntaxError> {
        let Token::Word(word) = self.next()? else { return Err(SyntaxError) };
        self.expect_word("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_newlines()?;
            if self.skip_word("esac")? {
                return Ok(Kind::Case(word, arms));
            }
            self.skip_operator("(")?;
            let mut patterns = Vec::new();
            loop {
                let Token::Word(pattern) = self.next()? else { return Err(SyntaxError) };
                patterns.push(pattern);
                if self.skip_operator(")")? {
                    break;
                }
                if !self.skip_operator("|")? {
                    return Err(SyntaxError);
                }
            }
            let (body, end) = self.list(&[";;", ";&", ";;&", "esac"])?;
            arms.push((patterns, body));
            if end == "esac" {
                return Ok(Kind::Case(word, arms));
            }
        }
    }

    fn function(&mut self, name: String) -> Result<Kind, SyntaxError> {
        self.skip_newlines()?;
        let line = self.lexer.line;
        let body = self.command()?;
        let body = match body.kind {
            Kind::Group(list) => list,
            kind => {
                let commands = vec![Command { line, kind, redirects: Vec::new() }];
                vec![AndOr { first: Pipeline { commands, negated: false }, ..AndOr::default() }]
            }
        };
        Ok(Kind::Function(name, Rc::new(body)))
    }

    fn test(&mut self) -> Result<Kind, SyntaxError> {
        let mut words = Vec::new();
        loop {
            match self.lexer.next(true)? {
                Token::Word(word) if word.raw == "]]" => return Ok(Kind::Test(words)),
                Token::Word(word) => words.push(word),
                Token::Operator(operator) => {
                    words.push(Word { raw: operator.to_owned(), line: self.lexer.line });
                }
                Token::Newline => {}
                Token::End => return Err(SyntaxError),
            }
        }
    }

    fn simple(&mut self, line: usize) -> Result<Command, SyntaxError> {
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::<Word>::new(), Vec::new());
        loop {
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            match self.peek()?.clone() {
                Token::Word(word) => {
                    self.ahead = None;
                    if words.is_empty() && assignment(&word.raw).is_some() {
                        assignments.push(word);
                    } else {
                        words.push(word);
                    }
                }
                Token::Operator("(") if words.len() == 1 && assignments.is_empty() => {
                    self.ahead = None;
                    if !self.skip_operator(")")? {
                        return Err(SyntaxError);
                    }
                    let kind = self.function(words.swap_remove(0).raw)?;
                    return Ok(Command { line, kind, redirects });
                }
                Token::Operator("(") => return Err(SyntaxError),
                _ => break,
            }
        }
        if assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(SyntaxError);
        }
        let line = words.first().or(assignments.first()).map_or(line, |word| word.line);
        Ok(Command { line, kind: Kind::Simple { assignments, words }, redirects })
    }

    fn redirect(&mut self) -> Result<Option<Redirect>, SyntaxError> {
        // The number of a file descriptor is an empty word.
        self.skip_word("")?;
        let Token::Operator(operator) = *self.peek()? else { return Ok(None) };
        if !operator.contains(['<', '>']) {
            return Ok(None);
        }
        self.ahead = None;
        let Token::Word(target) = self.next()? else { return Err(SyntaxError) };
        let document = matches!(operator, "<<" | "<<-").then(|| {
            let index = self.lexer.expect_document(&target.raw, operator == "<<-");
            // Its text follows the line; the index is replaced when all of the script has been read.
            HereDocument { text: index.to_string(), quoted: false }
        });
        Ok(Some(Redirect { operator, target, document }))
    }

    fn attach_documents(&self, list: &mut List) {
        visit(list, &mut |command| {
            for document in command.redirects.iter_mut().filter_map(|redirect| redirect.document.as_mut()) {
                let index = document.text.parse::<usize>().unwrap_or(usize::MAX);
                *document = self.lexer.documents.get(index).cloned().unwrap_or_default();
            }
        });
    }
}
